import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Arrays;
import java.util.zip.Adler32;
import java.util.zip.CRC32;
import java.util.zip.Deflater;
import java.util.zip.DeflaterOutputStream;
import java.util.zip.GZIPInputStream;
import java.util.zip.GZIPOutputStream;
import java.util.zip.Inflater;

/** What java.util.zip does with a file, there and back. Usage: Java FILE OUT.gz */
class Java {
    static final int[] FLUSHES = {Deflater.NO_FLUSH, Deflater.SYNC_FLUSH, Deflater.FULL_FLUSH};

    public static void main(String[] args) throws Exception {
        byte[] body = Files.readAllBytes(Path.of(args[0]));
        try (var out = new GZIPOutputStream(Files.newOutputStream(Path.of(args[1])), 4096, true)) {
            for (int at = 0; at < body.length; at += 50_000) {
                out.write(body, at, Math.min(50_000, body.length - at));
                out.flush();
            }
        }
        try (var in = new GZIPInputStream(Files.newInputStream(Path.of(args[1])))) {
            same(body, in.readAllBytes(), "gzip");
        }
        for (int level = -1; level <= 9; level++) {
            for (boolean raw : new boolean[] {false, true}) {
                for (int strategy : new int[] {Deflater.DEFAULT_STRATEGY, Deflater.FILTERED, Deflater.HUFFMAN_ONLY}) {
                    var deflater = new Deflater(level, raw);
                    deflater.setStrategy(strategy);
                    same(body, inflate(whole(deflater, body), raw, null), "whole, level " + level);
                    deflater.reset();
                    same(body, inflate(whole(deflater, body), raw, null), "again, level " + level);
                    deflater.end();
                }
                for (int flush : FLUSHES) {
                    var deflater = new Deflater(level, raw);
                    same(body, inflate(flushed(deflater, body, flush), raw, null), "flush " + flush + ", level " + level);
                    deflater.end();
                }
                byte[] dictionary = Arrays.copyOf(body, Math.min(body.length, 40_000));
                if (dictionary.length > 0) {
                    var deflater = new Deflater(level, raw);
                    deflater.setDictionary(dictionary);
                    same(body, inflate(whole(deflater, body), raw, dictionary), "dictionary, level " + level);
                    deflater.end();
                }
            }
        }
        same(body, inflate(changing(body), false, null), "parameters that change");
        visible(body);
        System.out.printf("crc %x, adler %x%n", crc(body), adler(body));
    }

    static byte[] whole(Deflater deflater, byte[] body) throws IOException {
        var out = new ByteArrayOutputStream();
        try (var stream = new DeflaterOutputStream(out, deflater, 777)) {
            stream.write(body);
        }
        if (deflater.getBytesRead() != body.length || deflater.getBytesWritten() != out.size()) {
            throw new IllegalStateException("counts");
        }
        return out.toByteArray();
    }

    /** In pieces, each with a flush. */
    static byte[] flushed(Deflater deflater, byte[] body, int flush) {
        var out = new ByteArrayOutputStream();
        byte[] room = new byte[3000];
        for (int at = 0; at < body.length; at += 70_001) {
            deflater.setInput(body, at, Math.min(70_001, body.length - at));
            int len;
            do {
                len = deflater.deflate(room, 0, room.length, flush);
                out.write(room, 0, len);
            } while (len == room.length || (flush == Deflater.NO_FLUSH && !deflater.needsInput()));
        }
        deflater.finish();
        while (!deflater.finished()) {
            out.write(room, 0, deflater.deflate(room));
        }
        return out.toByteArray();
    }

    /** Another level or strategy for each piece. */
    static byte[] changing(byte[] body) {
        var deflater = new Deflater();
        var out = new ByteArrayOutputStream();
        byte[] room = new byte[100_000];
        int piece = 0;
        for (int at = 0; at < body.length; at += 30_000) {
            deflater.setLevel(piece % 10);
            deflater.setStrategy(piece++ % 3);
            deflater.setInput(body, at, Math.min(30_000, body.length - at));
            while (!deflater.needsInput()) {
                out.write(room, 0, deflater.deflate(room));
            }
        }
        deflater.finish();
        while (!deflater.finished()) {
            out.write(room, 0, deflater.deflate(room));
        }
        deflater.end();
        return out.toByteArray();
    }

    /** What was flushed can be inflated before the rest is there. */
    static void visible(byte[] body) throws Exception {
        var deflater = new Deflater();
        var inflater = new Inflater();
        byte[] room = new byte[2 * body.length + 100];
        byte[] got = new byte[body.length + 1];
        for (int at = 0; at < body.length; at += 20_000) {
            int len = Math.min(20_000, body.length - at);
            deflater.setInput(body, at, len);
            int made = deflater.deflate(room, 0, room.length, Deflater.SYNC_FLUSH);
            inflater.setInput(room, 0, made);
            int seen = 0;
            while (!inflater.needsInput()) {
                seen += inflater.inflate(got, seen, got.length - seen);
            }
            same(Arrays.copyOfRange(body, at, at + len), Arrays.copyOf(got, seen), "flushed at " + at);
        }
        deflater.end();
        inflater.end();
    }

    static byte[] inflate(byte[] bytes, boolean raw, byte[] dictionary) throws Exception {
        var inflater = new Inflater(raw);
        if (raw && dictionary != null) {
            inflater.setDictionary(dictionary);
        }
        inflater.setInput(bytes);
        var out = new ByteArrayOutputStream();
        byte[] room = new byte[10_000];
        while (!inflater.finished()) {
            int len = inflater.inflate(room);
            if (len == 0 && inflater.needsDictionary()) {
                inflater.setDictionary(dictionary);
            } else if (len == 0 && !inflater.finished() && inflater.needsInput()) {
                throw new IllegalStateException("cut");
            }
            out.write(room, 0, len);
        }
        if (inflater.getRemaining() != 0) {
            throw new IllegalStateException("left");
        }
        inflater.end();
        return out.toByteArray();
    }

    static void same(byte[] wanted, byte[] got, String what) {
        if (!Arrays.equals(wanted, got)) {
            throw new IllegalStateException(what + ": " + got.length + " bytes in place of " + wanted.length);
        }
    }

    static long crc(byte[] body) {
        var crc = new CRC32();
        crc.update(body);
        return crc.getValue();
    }

    static long adler(byte[] body) {
        var adler = new Adler32();
        adler.update(body);
        return adler.getValue();
    }
}
