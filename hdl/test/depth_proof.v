// For all depths, sizes and numbers of packets that come at once, by yosys' `sat`: drill_depth.v adds up what comes, takes away what
// leaves, and stays at the highest value.
module depth_proof #(
    parameter E = 4,
    parameter W = 3,
    parameter S = 3
) (
    input wire           clk,
    input wire           reset,
    input wire [E-1:0]   comes,
    input wire [E*S-1:0] size,
    input wire           leaves
);
    wire [W-1:0] depth;
    drill_depth #(.E(E), .W(W), .S(S)) dut(.clk(clk), .reset(reset), .comes(comes), .size(size), .leaves(leaves), .depth(depth));
    reg          is_begun = 0;
    reg  [W-1:0] expected;
    integer all, e;
    always @* begin
        all = depth;
        if (leaves && depth > 0) all = all - 1;
        for (e = 0; e < E; e = e + 1) if (comes[e]) all = all + size[e*S +: S];
        if (all > (1 << W) - 1) all = (1 << W) - 1;
        if (reset) all = 0;
    end
    always @(posedge clk) {is_begun, expected} <= {1'b1, all[W-1:0]};
    always @* assert (!is_begun || depth == expected);
endmodule
