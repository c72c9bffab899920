// The least loaded of the ports that are looked at: the first is taken, and M are remembered. On a tie the one drawn first comes first, and a
// drawn one before a remembered one; a port that is both counts once, as drawn. No registers. Read first: crates/balance/src/drill.rs.
module drill_look #(
    parameter N = 48,            // ports
    parameter D = 2,             // drawn
    parameter M = 1,             // remembered
    parameter W = 16,            // bits of a depth
    parameter P = $clog2(N),
    parameter K = M > 0 ? M : 1
) (
    input  wire [N*W-1:0] depths,
    input  wire [D-1:0]   is_drawn,
    input  wire [D*P-1:0] drawn,
    input  wire [K-1:0]   is_kept,
    input  wire [K*P-1:0] kept,
    output reg  [K-1:0]   is_least,   // the first is in the lowest bits
    output reg  [K*P-1:0] least
);
    localparam L = D + M;
    localparam B = $clog2(L + 1);
    wire [D+K-1:0]     is_look = {is_kept, is_drawn};
    wire [(D+K)*P-1:0] looks = {kept, drawn};
    reg [L-1:0]   is_seen;
    reg [L*W-1:0] depth;
    reg [L*B-1:0] rank;          // how many of the others come before it
    reg           is_first;
    integer i, j;
    always @* begin
        for (i = 0; i < L; i = i + 1) begin
            depth[i*W +: W] = depths[looks[i*P +: P]*W +: W];
            is_seen[i] = is_look[i];
            for (j = 0; j < D; j = j + 1)
                if (i >= D && is_drawn[j] && drawn[j*P +: P] == looks[i*P +: P]) is_seen[i] = 0;
        end
        rank = 0;
        for (i = 0; i < L; i = i + 1)
            for (j = i + 1; j < L; j = j + 1) begin
                is_first = depth[i*W +: W] <= depth[j*W +: W];
                rank[j*B +: B] = rank[j*B +: B] + (is_seen[i] && is_first);
                rank[i*B +: B] = rank[i*B +: B] + (is_seen[j] && !is_first);
            end
        {is_least, least} = 0;
        for (i = 0; i < L; i = i + 1)
            for (j = 0; j < K; j = j + 1)
                if (is_seen[i] && rank[i*B +: B] == j) begin
                    is_least[j] = 1;
                    least[j*P +: P] = least[j*P +: P] | looks[i*P +: P];
                end
    end
endmodule
