// The depth of one port's queue: what all engines have put there, less what has left. It stays at its highest value rather than wrap.
module drill_depth #(
    parameter E = 1,             // engines
    parameter W = 16,            // bits of a depth
    parameter S = 8              // bits of a packet's size
) (
    input  wire           clk,
    input  wire           reset,
    input  wire [E-1:0]   comes,
    input  wire [E*S-1:0] size,
    input  wire           leaves,   // one unit, if there is any
    output reg  [W-1:0]   depth
);
    localparam T = (W > S ? W : S) + $clog2(E) + 1;
    reg [T-1:0] sum;
    integer e;
    always @* begin
        sum = depth - (leaves && depth != 0);
        for (e = 0; e < E; e = e + 1) sum = sum + (size[e*S +: S] & {S{comes[e]}});
    end
    always @(posedge clk) depth <= reset ? 0 : |sum[T-1:W] ? {W{1'b1}} : sum[W-1:0];
endmodule
