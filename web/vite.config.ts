import { createHash } from "node:crypto";
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
        if (!entry.isFile() || !/\.(js|css|html|svg|webmanifest)$/.test(entry.name)) continue;
        const content = readFileSync(path);
        if (content.length < MIN_BYTES) continue;
        writeFileSync(`${path}.gz`, gzipSync(content, { level: 9 }));
        const params = { [constants.BROTLI_PARAM_QUALITY]: 9 };
        writeFileSync(`${path}.br`, brotliCompressSync(content, { params }));
      }
    },
  };
}

/** The files that the service worker keeps, as web/public/sw.js names them. */
const OFFLINE_FILES = ["offline.html", "offline.css", "offline.js", "favicon.svg"];

/** A changed offline page is another service worker, which browsers then install. */
function nameOfflinePage(): Plugin {
  return {
    name: "name-offline-page",
    apply: "build",
    writeBundle({ dir = "dist" }) {
      const hash = createHash("sha256");
      for (const file of OFFLINE_FILES) hash.update(readFileSync(join(dir, file)));
      const worker = join(dir, "sw.js");
      const text = readFileSync(worker, "utf8");
      if (!text.includes("__OFFLINE__")) throw new Error("sw.js does not name its offline page");
      writeFileSync(worker, text.replace("__OFFLINE__", hash.digest("hex").slice(0, 12)));
    },
  };
}

export default defineConfig({
  root: import.meta.dirname,
  plugins: [react(), nameOfflinePage(), precompress()],
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
