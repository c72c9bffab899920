// For every input, by yosys' `sat`: the port that drill_look.v takes is the least loaded of those that were drawn and are remembered, on a
// tie the one looked at first, and remembered are the M least loaded of all of them.
module look_proof #(
    parameter N = 4,
    parameter D = 2,
    parameter M = 2,
    parameter W = 3,
    parameter P = $clog2(N)
) (
    input wire [N*W-1:0] depths,
    input wire [D-1:0]   is_drawn,
    input wire [D*P-1:0] drawn,
    input wire [M-1:0]   is_kept,
    input wire [M*P-1:0] kept
);
    wire [M-1:0]   is_least;
    wire [M*P-1:0] least;
    drill_look #(.N(N), .D(D), .M(M), .W(W)) dut(.depths(depths), .is_drawn(is_drawn), .drawn(drawn), .is_kept(is_kept), .kept(kept),
        .is_least(is_least), .least(least));
    wire [P-1:0] port = least[P-1:0];

    // All that is looked at, in order: a port is there where it comes first.
    wire [D+M-1:0]     is_there = {is_kept, is_drawn};
    wire [(D+M)*P-1:0] looks = {kept, drawn};
    reg [N-1:0] is_seen, is_remembered;
    reg [N*8-1:0] first;
    integer i, p, q, seen, remembered;
    reg is_better;
    always @* begin
        is_seen = 0;
        first = 0;
        seen = 0;
        for (i = D + M - 1; i >= 0; i = i - 1)
            if (is_there[i]) begin
                first[looks[i*P +: P]*8 +: 8] = i;
                is_seen[looks[i*P +: P]] = 1;
            end
        is_remembered = 0;
        remembered = 0;
        for (i = 0; i < M; i = i + 1)
            if (is_least[i]) begin
                assert (!is_remembered[least[i*P +: P]]);
                is_remembered[least[i*P +: P]] = 1;
                remembered = remembered + 1;
            end
        for (p = 0; p < N; p = p + 1) seen = seen + is_seen[p];

        // What drill_engine.v sees to, which draw_proof.v proves of those that are drawn: one port at least is drawn, no port twice, none is
        // remembered twice, and all are ports that there are.
        assume (is_drawn[0]);
        for (i = 0; i < D + M; i = i + 1) assume (!is_there[i] || looks[i*P +: P] < N);
        for (i = 0; i < D + M; i = i + 1)
            for (p = 0; p < i; p = p + 1)
                assume (!is_there[i] || !is_there[p] || (i >= D && p < D) || looks[i*P +: P] != looks[p*P +: P]);

        assert (is_seen[port]);
        assert (is_least[0]);
        assert (remembered == (seen < M ? seen : M));
        for (p = 0; p < N; p = p + 1)
            for (q = 0; q < N; q = q + 1) begin
                is_better = is_seen[p] && is_seen[q] && (depths[p*W +: W] < depths[q*W +: W]
                    || (depths[p*W +: W] == depths[q*W +: W] && first[p*8 +: 8] < first[q*8 +: 8]));
                // Nobody who is better is passed over: not by the port that is taken, and not by one that is remembered.
                assert (!(is_better && port == q));
                assert (!(is_better && is_remembered[q] && !is_remembered[p]));
            end
        for (i = 0; i + 1 < M; i = i + 1)
            assert (!is_least[i+1] || (is_least[i] && depths[least[i*P +: P]*W +: W] <= depths[least[(i+1)*P +: P]*W +: W]));
        for (p = 0; p < N; p = p + 1) assert (!is_remembered[p] || is_seen[p]);
    end
endmodule
