// From reset on, for every course of so many clocks and all random numbers (any_lfsr.v), by yosys' `sat`, of a small engine and from its
// outside alone: a port comes five clocks after it was asked for; it is one of its group's then; and it is not longer than the port that
// was picked for the group before, which is what DRILL(d,1) remembers, and DRILL(d,m) among others, at the depths of the clock in which
// it was asked for.
module engine_proof #(
    parameter N = 4,
    parameter D = 1,
    parameter M = 1,
    parameter W = 2,
    parameter P = $clog2(N)
) (
    input wire           clk,
    input wire           ask,
    input wire           group,
    input wire [2*N-1:0] groups,     // their ports
    input wire           forget,
    input wire [N*W-1:0] depths
);
    // Reset for six clocks.
    reg [3:0] clocks = 0;
    wire is_reset = clocks < 6;
    always @(posedge clk) if (is_reset) clocks <= clocks + 1;

    // Whoever changes groups says so, unless during a reset.
    reg [2*N-1:0] groups_before = 0;
    always @(posedge clk) groups_before <= groups;
    always @* assume (is_reset || forget || groups == groups_before);
    wire [N-1:0] mask = groups[group*N +: N];

    // What was asked for, 1 to 5 clocks ago, and depths 1 to 4 clocks ago.
    reg [4:0] asked = 0, chosen = 0, forgotten = 0;
    reg [5*N-1:0] masks = 0;
    reg [5*N*W-1:0] seen = 0;
    always @(posedge clk) begin
        asked <= {asked, ask && !is_reset};
        chosen <= {chosen, group};
        forgotten <= {forgotten, forget};
        masks <= {masks, mask};
        seen <= {seen, depths};
    end
    wire [N-1:0]   its_mask = masks[4*N +: N];
    wire [N*W-1:0] its_depths = seen[4*N*W +: N*W];

    wire picked;
    wire [P-1:0] port;
    drill_engine #(.N(N), .D(D), .M(M), .W(W), .G(2)) dut(.clk(clk), .reset(is_reset), .load(1'b0), .seed(32'd0), .seed_out(),
        .ask(ask && !is_reset), .group(group), .mask(mask), .forget(forget), .depths(seen[3*N*W +: N*W]), .picked(picked), .port(port));

    // The last port of each group, if it is remembered.
    reg [1:0] is_last = 0;
    reg [2*P-1:0] last = 0;
    wire its_group = chosen[4];
    always @(posedge clk) begin
        if (is_reset || forgotten[4]) is_last <= 0;
        if (picked && !is_reset) begin
            is_last[its_group] <= 1;
            last[its_group*P +: P] <= port;
        end
    end
    always @* if (!is_reset) begin
        assert (picked == (asked[4] && its_mask != 0));
        assert (!picked || its_mask[port]);
        if (picked && is_last[its_group] && !forgotten[4])
            assert (its_depths[port*W +: W] <= its_depths[last[its_group*P +: P]*W +: W]);
    end
endmodule
