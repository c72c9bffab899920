// drill_switch.v against what `weirgate fabric vectors` wrote, clock by clock, in any simulator: +vectors=FILE. Says `same: ...` at the end.
`timescale 1ns / 1ps
module switch_test;
    parameter N = 48;
    parameter E = 1;
    parameter D = 2;
    parameter M = 1;
    parameter W = 16;
    parameter S = 8;
    parameter G = 4;
    parameter ENQUEUE = 4;
    localparam P = $clog2(N);
    localparam GW = G > 1 ? $clog2(G) : 1;
    localparam SEEDS = 3 * ((D + 1) / 2) * E;
    // What all engines have takes so many words of 64 bits, the lowest first.
    localparam K = (8 * E + 63) / 64;
    localparam FIELDS = 7 + 3 * K;

    reg clk = 0, reset = 1, load = 0, change = 0;
    reg [31:0] seed = 0;
    reg [GW-1:0] change_group = 0;
    reg [N-1:0] change_mask = 0, up = {N{1'b1}}, leaves = 0;
    reg [E-1:0] ask = 0, expected_picked = 0;
    reg [E*GW-1:0] group = 0;
    reg [E*S-1:0] size = 0;
    reg [E*P-1:0] expected_port = 0;
    wire [E-1:0] picked;
    wire [E*P-1:0] port;
    drill_switch #(.N(N), .E(E), .D(D), .M(M), .W(W), .S(S), .G(G), .ENQUEUE(ENQUEUE)) dut(.clk(clk), .reset(reset), .load(load),
        .seed(seed), .change(change), .change_group(change_group), .change_mask(change_mask), .up(up), .ask(ask), .group(group),
        .size(size), .leaves(leaves), .picked(picked), .port(port));

    // A clock's row of words. Read here first: Verilator 5.006 does not see that $fread writes what logic reads.
    reg [63:0] field [0:FIELDS-1];
    reg [63:0] word;
    reg [64*K-1:0] groups, sizes, ports;
    reg [8*256-1:0] name;
    reg is_wrong = 0;
    integer file, bytes, i, e, clocks = 0, decisions = 0;
    task tick;
        begin
            #1 clk = 1;
            #1 clk = 0;
        end
    endtask
    // A clock in which each engine asks for another group, and the next one in the next.
    task tick_for_all;
        begin
            for (e = 0; e < E; e = e + 1) group[e*GW +: GW] = (i + e) % G;
            tick;
        end
    endtask

    initial begin
        if (!$value$plusargs("vectors=%s", name)) name = "/dev/stdin";
        file = $fopen(name, "rb");
        if (file == 0) $display("there is no such file");
        for (i = 0; i < 10 + ENQUEUE; i = i + 1) tick;
        // After a reset no group has ports; and what went before one leaves nothing: groups, packets under way, what is remembered, depths.
        load = 1;
        for (i = 0; i < SEEDS; i = i + 1) begin
            seed = 32'h9e3779b9 + i;
            tick;
        end
        load = 0;
        reset = 0;
        ask = {E{1'b1}};
        size = {E*S{1'b1}};
        for (i = 0; i < 10 + G; i = i + 1) begin
            tick_for_all;
            is_wrong = is_wrong || picked !== 0;
        end
        if (is_wrong) $display("a group has ports after a reset");
        change = 1;
        change_mask = {N{1'b1}};
        for (i = 0; i < G; i = i + 1) begin
            change_group = i;
            tick_for_all;
        end
        change = 0;
        for (i = 0; i < 20 + G; i = i + 1) tick_for_all;
        ask = 0;
        reset = 1;
        for (i = 0; i < 10 + ENQUEUE; i = i + 1) tick;
        load = 1;
        for (i = 0; i < SEEDS; i = i + 1) begin
            bytes = $fread(word, file);
            seed = word;
            tick;
        end
        load = 0;
        reset = 0;
        bytes = 8 * FIELDS;
        while (bytes == 8 * FIELDS && !is_wrong) begin
            bytes = $fread(field, file);
            if (bytes == 8 * FIELDS) begin
                change = field[0];
                change_group = field[1];
                change_mask = field[2];
                up = field[3];
                ask = field[4];
                for (i = 0; i < K; i = i + 1) begin
                    groups[i*64 +: 64] = field[5+i];
                    sizes[i*64 +: 64] = field[5+K+i];
                    ports[i*64 +: 64] = field[7+2*K+i];
                end
                group = groups;
                size = sizes;
                leaves = field[5+2*K];
                expected_picked = field[6+2*K];
                expected_port = ports;
                is_wrong = picked !== expected_picked;
                for (i = 0; i < E; i = i + 1)
                    if (picked[i]) begin
                        decisions = decisions + 1;
                        is_wrong = is_wrong || port[i*P +: P] !== expected_port[i*P +: P];
                    end
                if (is_wrong) $display("clock %0d: picked %h, expected %h; ports %h, expected %h", clocks, picked, expected_picked,
                    port, expected_port);
                clocks = clocks + 1;
                tick;
            end
        end
        if (bytes > 0 && bytes < 8 * FIELDS) $display("clock %0d: a row of %0d bytes", clocks, bytes);
        else if (!is_wrong && decisions > 0) $display("same: %0d decisions in %0d clocks", decisions, clocks);
        $finish;
    end
endmodule
