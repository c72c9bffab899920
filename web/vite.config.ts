import { defineConfig } from "vite";

// `npm run dev` shows the page with the data of a daemon that runs on this machine.
export default defineConfig({
  build: { target: "es2022", assetsInlineLimit: 0, reportCompressedSize: false },
  server: { proxy: { "/api": "http://127.0.0.1:7070", "/metrics": "http://127.0.0.1:7070" } },
});
