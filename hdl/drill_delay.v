// What came so many clocks ago.
module drill_delay #(parameter B = 1, parameter CLOCKS = 1) (input wire clk, input wire [B-1:0] in, output wire [B-1:0] out);
    reg [CLOCKS*B-1:0] line;
    assign out = line[(CLOCKS-1)*B +: B];
    always @(posedge clk) line <= {line, in};
endmodule
