// E engines that share the depths of N queues, and the groups that they choose from. Each decides alone, by what all of them have put
// into the queues until ENQUEUE clocks after a packet's port was known: until then it is on its way, and nobody sees it.
//
// An engine looks at depths four clocks after it was asked, and is to see them as they were then (drill_engine.v). So the registers
// lag: what comes and what leaves waits four clocks more (docs/hardware.md has what that takes, and what keeping the depths would).
module drill_switch #(
    parameter N = 48,            // ports, 2 to 64
    parameter E = 1,             // engines
    parameter D = 2,             // ports drawn
    parameter M = 1,             // ports remembered
    parameter W = 16,            // bits of a depth
    parameter S = 8,             // bits of a packet's size, in units of a depth
    parameter G = 4,             // groups of next hops
    parameter ENQUEUE = 4,       // clocks, 1 at least
    parameter P = $clog2(N),
    parameter GW = G > 1 ? $clog2(G) : 1
) (
    input  wire            clk,
    input  wire            reset,      // until nothing is under way any more, which is after 9 + ENQUEUE clocks
    input  wire            load,       // the seeds of the engines' generators, the last one's first, three words each: see drill_lfsr.v
    input  wire [31:0]     seed,
    input  wire            change,     // a group has these ports (after reset none); its number is below G, here and below
    input  wire [GW-1:0]   change_group,
    input  wire [N-1:0]    change_mask,
    input  wire [N-1:0]    up,         // links that are up
    input  wire [E-1:0]    ask,        // a packet has come to an engine, for a group and of this size
    input  wire [E*GW-1:0] group,
    input  wire [E*S-1:0]  size,
    input  wire [N-1:0]    leaves,     // a unit has left the port's queue
    output wire [E-1:0]    picked,     // five clocks later, unless all ports of the group were down
    output wire [E*P-1:0]  port
);
    localparam LATENCY = 5;
    localparam LAG = 4;

    reg [G*N-1:0] masks;
    reg [N-1:0]   was_up;
    reg           forget;
    always @(posedge clk) begin
        if (change) masks[change_group*N +: N] <= change_mask;
        if (reset) masks <= 0;
        was_up <= up;
        // Whichever changes, all is forgotten, as balance has it.
        forget <= change || up != was_up;
    end

    wire [E*32+31:0] seeds;
    wire [N*W-1:0]   depths;
    wire [N-1:0]     left;
    wire [E*S-1:0]   of;
    genvar e, n;
    assign seeds[31:0] = seed;
    drill_delay #(.B(N), .CLOCKS(LAG)) lag(.clk(clk), .in(leaves), .out(left));
    generate
        if (N < 2 || N > 64 || E < 1 || D < 1 || M < 0 || W < 1 || S < 1 || G < 1 || ENQUEUE < 1)
            n_has_to_be_2_to_64_and_the_rest_1_but_m_0_at_least refused();
        for (e = 0; e < E; e = e + 1) begin : engine
            wire comes;
            wire [P-1:0] to;
            drill_engine #(.N(N), .D(D), .M(M), .W(W), .G(G)) drill(.clk(clk), .reset(reset), .load(load),
                .seed(seeds[e*32 +: 32]), .seed_out(seeds[e*32+32 +: 32]), .ask(ask[e]), .group(group[e*GW +: GW]),
                .mask(masks[group[e*GW +: GW]*N +: N] & was_up), .forget(forget), .depths(depths),
                .picked(picked[e]), .port(port[e*P +: P]));
            drill_delay #(.B(1+P), .CLOCKS(ENQUEUE+LAG-1)) enqueue(.clk(clk), .in({picked[e], port[e*P +: P]}),
                .out({comes, to}));
            drill_delay #(.B(S), .CLOCKS(LATENCY+ENQUEUE+LAG-1)) sizes(.clk(clk), .in(size[e*S +: S]), .out(of[e*S +: S]));
        end
        for (n = 0; n < N; n = n + 1) begin : queue
            wire [E-1:0] here;
            for (e = 0; e < E; e = e + 1) begin : from
                assign here[e] = engine[e].comes && engine[e].to == n;
            end
            drill_depth #(.E(E), .W(W), .S(S)) register(.clk(clk), .reset(reset), .comes(here), .size(of), .leaves(left[n]),
                .depth(depths[n*W +: W]));
        end
    endgenerate
endmodule
