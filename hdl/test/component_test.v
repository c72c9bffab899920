// component_hash.v against what `weirgate fabric vectors` wrote, clock by clock: +vectors=FILE. Says `same: ...` at the end.
`timescale 1ns / 1ps
module component_test;
    parameter C = 4;
    parameter B = 16;
    localparam P = $clog2(C);
    reg clk = 0;
    reg [63:0] flow = 0, seed = 0;
    reg [C*B-1:0] bounds = 0;
    wire [P-1:0] component;
    component_hash #(.C(C), .B(B)) dut(.clk(clk), .flow(flow), .seed(seed), .bounds(bounds), .component(component));

    // Read here first: see switch_test.v.
    localparam FIELDS = 6;
    reg [63:0] field [0:FIELDS-1];
    reg [127:0] wide;
    reg [8*256-1:0] name;
    reg is_wrong = 0;
    integer file, bytes = 8 * FIELDS, clocks = 0, flows = 0;
    initial begin
        if (!$value$plusargs("vectors=%s", name)) name = "/dev/stdin";
        file = $fopen(name, "rb");
        if (file == 0) $display("there is no such file");
        while (bytes == 8 * FIELDS && !is_wrong) begin
            bytes = $fread(field, file);
            if (bytes == 8 * FIELDS) begin
                flow = field[0];
                seed = field[1];
                wide = {field[3], field[2]};
                bounds = wide;
                if (field[4] == 1) begin
                    flows = flows + 1;
                    is_wrong = component !== field[5][P-1:0];
                    if (is_wrong) $display("clock %0d: component %0d, expected %0d", clocks, component, field[5]);
                end
                clocks = clocks + 1;
                #1 clk = 1;
                #1 clk = 0;
            end
        end
        if (bytes > 0 && bytes < 8 * FIELDS) $display("clock %0d: a row of %0d bytes", clocks, bytes);
        else if (!is_wrong && flows > 0) $display("same: %0d decisions in %0d clocks", flows, clocks);
        $finish;
    end
endmodule
