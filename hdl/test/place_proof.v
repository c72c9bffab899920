// For every group and every place in it, by yosys' `sat`: drill_place.v finds the port with so many of the group's ports before it.
module place_proof #(
    parameter N = 16,
    parameter P = $clog2(N)
) (
    input wire [N-1:0] mask,
    input wire [P-1:0] place
);
    wire [7:0]        count;
    wire [(8<<P)-1:0] left;
    wire [P-1:0]      port;
    drill_count #(.N(N)) counter(.mask(mask), .count(count), .left(left));
    drill_place #(.P(P)) dut(.left(left), .place(place), .port(port));
    integer i, all, before;
    always @* begin
        all = 0;
        before = 0;
        for (i = 0; i < N; i = i + 1) begin
            all = all + mask[i];
            if (i < port) before = before + mask[i];
        end
        assert (count == all);
        assert (place >= all || (mask[port] && before == place));
    end
endmodule
