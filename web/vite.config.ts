import react from "@vitejs/plugin-react";
import { defineConfig } from "vite";

const API = process.env.PURSER_API ?? "http://127.0.0.1:3000";

export default defineConfig({
  root: import.meta.dirname,
  plugins: [react()],
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
