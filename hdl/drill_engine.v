// One forwarding engine's DRILL(d,m): a port each clock, five clocks after it was asked for. Read first: docs/hardware.md, and
// crates/balance/src/drill.rs for what it does; drill_switch.v has the depths that it reads, and refuses parameters that are none.
//
//   clock   0  asked for a port of a group; depths count as they are now
//           1  how many ports does the group have?
//           2  which of them, by their places in the group, are drawn?
//           3  which ports are these? what is remembered of the group?
//           4  which is the least loaded? it is remembered
//           5  the port is known
module drill_engine #(
    parameter N = 48,            // ports, 2 to 64
    parameter D = 2,             // drawn
    parameter M = 1,             // remembered
    parameter W = 16,            // bits of a depth
    parameter G = 4,             // groups of next hops
    parameter P = $clog2(N),
    parameter GW = G > 1 ? $clog2(G) : 1
) (
    input  wire           clk,
    input  wire           reset,    // nothing is remembered: for five clocks at least, in which nothing is asked for
    input  wire           load,     // the random numbers' registers are filled: see drill_lfsr.v
    input  wire [31:0]    seed,
    output wire [31:0]    seed_out,
    input  wire           ask,
    input  wire [GW-1:0]  group,    // below G
    input  wire [N-1:0]   mask,     // the group's ports that are up
    input  wire           forget,   // groups have changed: from this clock on nothing is remembered
    input  wire [N*W-1:0] depths,   // as they were four clocks ago
    output reg            picked,   // not where the group had no ports
    output reg  [P-1:0]   port
);
    localparam K = M > 0 ? M : 1;
    localparam R = (D + 1) / 2;     // generators
    integer i, j;
    genvar g;
    wire [R*32-1:0] words;
    wire [R*32+31:0] seeds;
    assign seeds[31:0] = seed;
    assign seed_out = seeds[R*32 +: 32];
    generate
        for (g = 0; g < R; g = g + 1) begin : random
            drill_lfsr lfsr(.clk(clk), .load(load), .seed(seeds[g*32 +: 32]), .seed_out(seeds[g*32+32 +: 32]), .word(words[g*32 +: 32]));
        end
    endgenerate

    // 1: how many ports?
    reg          ask1, forget1;
    reg [GW-1:0] group1;
    reg [N-1:0]  mask1;
    wire [7:0]   count1;
    wire [(8<<P)-1:0] left1;
    drill_count #(.N(N)) tree(.mask(mask1), .count(count1), .left(left1));

    // 2: which places?
    reg               ask2, forget2;
    reg [GW-1:0]      group2;
    reg [7:0]         count2;
    reg [R*32-1:0]    words2;
    reg [(8<<P)-1:0]  left2;
    reg [D-1:0]       is_drawn2;
    reg [D*P-1:0]     places2, sorted;
    reg [P-1:0]       place, swapped;
    reg [6:0]         bound;
    reg [22:0]        product;
    always @* begin
        {sorted, swapped} = 0;
        for (i = 0; i < D; i = i + 1) begin
            // Below what is left, by the upper part of a product.
            is_drawn2[i] = count2 > i;
            bound = count2 - i;
            product = words2[(i/2)*32 + (i%2 == 0 ? 16 : 0) +: 16] * bound;
            place = product[16 +: P];
            // Of those that were not drawn yet: past those that were, the lowest first.
            for (j = 0; j < i; j = j + 1) if (sorted[j*P +: P] <= place) place = place + 1;
            places2[i*P +: P] = place;
            for (j = 0; j < i; j = j + 1)
                if (sorted[j*P +: P] > place) begin
                    swapped = sorted[j*P +: P];
                    sorted[j*P +: P] = place;
                    place = swapped;
                end
            sorted[i*P +: P] = place;
        end
    end

    // 3: which ports? And what is remembered of the group?
    reg              ask3, forget3;
    reg [GW-1:0]     group3;
    reg [D-1:0]      is_drawn3;
    reg [D*P-1:0]    places3;
    reg [(8<<P)-1:0] left3;
    wire [D*P-1:0]   drawn3;
    reg [G*K-1:0]    remembered_is;
    reg [G*K*P-1:0]  remembered;
    generate
        for (g = 0; g < D; g = g + 1) begin : draw
            drill_place #(.P(P)) find(.left(left3), .place(places3[g*P +: P]), .port(drawn3[g*P +: P]));
        end
    endgenerate

    // 4: which is the least loaded?
    reg            ask4;
    reg [GW-1:0]   group4;
    reg [D-1:0]    is_drawn4;
    reg [D*P-1:0]  drawn4;
    reg [K-1:0]    is_kept4;
    reg [K*P-1:0]  kept4;
    wire [K-1:0]   is_least4;
    wire [K*P-1:0] least4;
    drill_look #(.N(N), .D(D), .M(M), .W(W)) look(.depths(depths), .is_drawn(is_drawn4), .drawn(drawn4), .is_kept(is_kept4),
        .kept(kept4), .is_least(is_least4), .least(least4));

    // The decision before may be of the same group: what it remembers is not written yet.
    wire is_same = ask4 && group4 == group3;
    always @(posedge clk) begin
        {ask1, group1, mask1, forget1} <= {ask && |mask, group, mask, forget};
        {ask2, group2, left2, forget2, count2, words2} <= {ask1, group1, left1, forget1, count1, words};
        {ask3, group3, forget3, is_drawn3, places3, left3} <= {ask2, group2, forget2, is_drawn2, places2, left2};
        {ask4, group4, is_drawn4, drawn4} <= {ask3, group3, is_drawn3, drawn3};
        is_kept4 <= forget3 || M == 0 ? 0 : is_same ? is_least4 : remembered_is[group3*K +: K];
        kept4 <= is_same ? least4 : remembered[group3*K*P +: K*P];
        if (ask4) begin
            remembered_is[group4*K +: K] <= is_least4;
            remembered[group4*K*P +: K*P] <= least4;
        end
        // This decision finds nothing, and the one before it leaves nothing.
        if (reset || forget3) remembered_is <= 0;
        {picked, port} <= {ask4, least4[P-1:0]};
    end
endmodule
