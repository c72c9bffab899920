// component_hash.v against what `weirgate fabric vectors` wrote, clock by clock: +vectors=FILE. Says `same: ...` at the end.
`timescale 1ns / 1ps
module component_test;
    parameter C = 4;
    parameter B = 16;
    localparam P = $clog2(C);
    reg clk = 0;
    reg [63:0] flow = 0, seed = 0;
    reg [C*B-1:0] bounds = 0;
    wire [P-1:0] component;
    component_hash #(.C(C), .B(B)) dut(.clk(clk), .flow(flow), .seed(seed), .bounds(bounds), .component(component));

    // Read here first: see switch_test.v. What is wider than 64 bits it reads into no array either.
    reg [63:0] field [0:3];
    reg [127:0] wide;
    reg [8*256-1:0] name;
    reg is_wrong = 0;
    integer file, fields = 5, clocks = 0, flows = 0;
    initial begin
        if (!$value$plusargs("vectors=%s", name)) name = "/dev/stdin";
        file = $fopen(name, "r");
        while (fields == 5 && !is_wrong) begin
            fields = $fscanf(file, "%h %h %h %h %h", field[0], field[1], wide, field[2], field[3]);
            if (fields == 5) begin
                flow = field[0];
                seed = field[1];
                bounds = wide;
                if (field[2] == 1) begin
                    flows = flows + 1;
                    is_wrong = component !== field[3][P-1:0];
                    if (is_wrong) $display("clock %0d: component %0d, expected %0d", clocks, component, field[3]);
                end
                clocks = clocks + 1;
                #1 clk = 1;
                #1 clk = 0;
            end
        end
        // At the end of the file there are none, or -1.
        if (fields > 0 && fields < 5) $display("clock %0d: a line with %0d fields", clocks, fields);
        else if (!is_wrong) $display("same: %0d decisions in %0d clocks", flows, clocks);
        $finish;
    end
endmodule
