// The random numbers of an engine: a generator of three shift registers with linear feedback (taus88). It never stops: every clock
// has a word of 32 bits, which is two numbers. Read first: crates/balance/src/lfsr.rs, which is the same in Rust and says why.
module drill_lfsr (
    input  wire        clk,
    input  wire        load,      // the registers are filled, word by word, and so are those of the generators after this one
    input  wire [31:0] seed,      // not below 16: a register whose upper bits are 0 stays 0
    output wire [31:0] seed_out,
    output wire [31:0] word
);
    reg [31:0] a, b, c;
    assign seed_out = a;
    assign word = a ^ b ^ c;
    always @(posedge clk)
        if (load) {a, b, c} <= {b, c, seed};
        else begin
            a <= {a[19:1], a[31:19] ^ a[18:6]};
            b <= {b[27:3], b[31:25] ^ b[29:23]};
            c <= {c[14:4], c[31:11] ^ c[28:8]};
        end
endmodule
