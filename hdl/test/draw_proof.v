// For every group and all random numbers, by yosys' `sat`: what drill_engine.v draws. As many ports as it is to, or all that the group
// has; no port twice; none but the group's. Five clocks of whatever went before are enough: what is drawn depends on no more.
module draw_proof #(
    parameter N = 8,
    parameter D = 2
) (
    input wire         clk,
    input wire         ask,
    input wire [N-1:0] mask
);
    // To drill_look, below, depths of one bit say which ports the group had four clocks ago.
    reg [4*N-1:0] masks;
    always @(posedge clk) masks <= {masks, mask};
    drill_engine #(.N(N), .D(D), .M(0), .W(1), .G(1)) dut(.clk(clk), .reset(1'b0), .load(1'b0), .seed(32'd0), .seed_out(), .ask(ask),
        .group(1'b0), .mask(mask), .forget(1'b0), .depths(masks[3*N +: N]), .picked(), .port());
endmodule

// In place of the other one, to see what it is given.
module drill_look #(
    parameter N = 8,
    parameter D = 2,
    parameter M = 0,
    parameter W = 1,
    parameter P = $clog2(N)
) (
    input  wire [N-1:0]   depths,
    input  wire [D-1:0]   is_drawn,
    input  wire [D*P-1:0] drawn,
    input  wire           is_kept,
    input  wire [P-1:0]   kept,
    output wire           is_least,
    output wire [P-1:0]   least
);
    assign is_least = 0;
    assign least = 0;
    reg [N-1:0] rest;
    integer i;
    always @* begin
        rest = depths;
        for (i = 0; i < D; i = i + 1) begin
            assert (is_drawn[i] == (rest != 0));
            if (is_drawn[i]) begin
                assert (drawn[i*P +: P] < N && rest[drawn[i*P +: P]]);
                rest[drawn[i*P +: P]] = 0;
            end
        end
    end
endmodule
