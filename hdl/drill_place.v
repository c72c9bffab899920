// The ports of a group, counted and found: a tree over its mask. Node i (the root is 1, those below i are 2i and 2i+1) has the number of
// the group's ports that are below 2i, in a byte.
module drill_count #(
    parameter N = 48,
    parameter P = $clog2(N)
) (
    input  wire [N-1:0]      mask,
    output reg  [7:0]        count,     // of all
    output reg  [(8<<P)-1:0] left
);
    reg [(16<<P)-1:0] below;
    integer i;
    always @* begin
        below = 0;
        left = 0;
        for (i = 0; i < N; i = i + 1) below[8*((1<<P)+i)] = mask[i];
        for (i = (1<<P) - 1; i > 0; i = i - 1) begin
            left[8*i +: 8] = below[16*i +: 8];
            below[8*i +: 8] = below[16*i +: 8] + below[16*i+8 +: 8];
        end
        count = below[15:8];
    end
endmodule

// The port at a place in its group: the one with so many before it. Down the tree, left where more than so many are, else right.
module drill_place #(
    parameter P = 6
) (
    input  wire [(8<<P)-1:0] left,
    input  wire [P-1:0]      place,
    output wire [P-1:0]      port
);
    reg [P:0] node;
    reg [7:0] rest, passed;
    integer level;
    assign port = node[P-1:0];
    always @* begin
        node = 1;
        rest = place;
        for (level = 0; level < P; level = level + 1) begin
            passed = left[{node, 3'd0} +: 8];
            node = {node[P-1:0], rest >= passed};
            if (node[0]) rest = rest - passed;
        end
    end
endmodule
