import { readdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { brotliCompressSync, constants, gzipSync } from "node:zlib";
import react from "@vitejs/plugin-react";
import { defineConfig, type Plugin } from "vite";

const API = process.env.PURSER_API ?? "http://127.0.0.1:3000";

const MIN_BYTES = 1024;

/** Compressed copies beside the files, so that the server sends them without work. */
function precompress(): Plugin {
  return {
    name: "precompress",
    apply: "build",
    writeBundle({ dir = "dist" }) {
      for (const entry of readdirSync(dir, { recursive: true, withFileTypes: true })) {
        const path = join(entry.parentPath, entry.name);
        if (!entry.isFile() || !/\.(js|css|html|svg)$/.test(entry.name)) continue;
        const content = readFileSync(path);
        if (content.length < MIN_BYTES) continue;
        writeFileSync(`${path}.gz`, gzipSync(content, { level: 9 }));
        const params = { [constants.BROTLI_PARAM_QUALITY]: 9 };
        writeFileSync(`${path}.br`, brotliCompressSync(content, { params }));
      }
    },
  };
}

export default defineConfig({
  root: import.meta.dirname,
  plugins: [react(), precompress()],
  // The workspace root holds React 18 for the test reporter; hoisted libraries must use ours.
  resolve: { dedupe: ["react", "react-dom"] },
  build: {
    outDir: "dist",
    emptyOutDir: true,
    target: "es2022",
    sourcemap: false,
    // An inlined asset would be a data: URL, which the content policy allows for images only.
    assetsInlineLimit: 0,
    modulePreload: { polyfill: false },
    // Without styles of their own, screens need one request less, which could fail; the build's helper would not repeat it.
    cssCodeSplit: false,
  },
  server: {
    host: "127.0.0.1",
    port: 5173,
    proxy: Object.fromEntries(
      ["/api", "/docs", "/openapi.json", "/skill.md", "/llms.txt", "/mcp"].map((path) => [
        path,
        { target: API },
      ]),
    ),
  },
});
