// Which symmetric component a flow goes by: by the hash of the flow and the switch's own seed, each with its share of the flows. Read
// first: FlowHash::at, FlowHash::below and Wcmp in crates/balance, which this is to the bit. A flow each clock; known five clocks later.
module component_hash #(
    parameter C = 4,                  // components of a group, 2 at least
    parameter B = 16,                 // bits of the sum of their weights
    parameter P = $clog2(C)
) (
    input  wire           clk,
    input  wire [63:0]    flow,       // its hash, the same in every switch
    input  wire [63:0]    seed,
    input  wire [C*B-1:0] bounds,     // three clocks after the flow: each component's weight and those before it, summed; the last above 0
    output reg  [P-1:0]   component
);
    wire [31:0]        hash;
    component_mix mix(.clk(clk), .flow(flow), .seed(seed), .hash(hash));
    wire [B+31:0]      product = hash * bounds[(C-1)*B +: B];
    reg  [B-1:0]       at;
    reg  [(C-1)*B-1:0] ends;
    reg  [P-1:0]       passed;
    generate if (C < 2 || B < 1) c_has_to_be_2_and_b_1_at_least refused(); endgenerate
    integer i;
    always @* begin
        passed = 0;
        for (i = 1; i < C; i = i + 1) passed = passed + (at >= ends[(i-1)*B +: B]);
    end
    always @(posedge clk) begin
        {at, ends} <= {product[32 +: B], bounds[(C-1)*B-1:0]};
        component <= passed;
    end
endmodule

// The hash of a flow in this switch, three clocks later: its upper half, which is all that is used. A switch that hashes flows with a
// seed of its own has such a thing; this one is MurmurHash3's finaliser, but for its last shift, which does not reach the upper half.
module component_mix (
    input  wire        clk,
    input  wire [63:0] flow,
    input  wire [63:0] seed,
    output reg  [31:0] hash
);
    wire [63:0] own = flow ^ seed;
    reg  [63:0] first, second;
    wire [63:0] third = (second ^ second >> 33) * 64'hc4ceb9fe1a85ec53;
    always @(posedge clk) begin
        first <= own ^ own >> 33;
        second <= first * 64'hff51afd7ed558ccd;
        hash <= third[63:32];
    end
endmodule
