// `node packages/build.mjs [purser] [paywall]` builds JavaScript for Node (ESM and CJS) and types into each
// dist/. Dependencies are bundled unless the package's manifest names them. There are no source maps: they were two
// thirds of a tarball, and the code is readable as it is.
import { execFile } from "node:child_process";
import { copyFileSync, mkdirSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { createRequire } from "node:module";
import { dirname, join } from "node:path";
import { promisify } from "node:util";
import { build } from "esbuild";

const HERE = import.meta.dirname;
const TSC = join(HERE, "..", "node_modules", ".bin", "tsc");
const { resolve } = createRequire(import.meta.url);

/** @type {import("esbuild").BuildOptions} */
const COMMON = {
  bundle: true,
  platform: "node",
  target: "node20.19",
  mainFields: ["module", "main"],
  legalComments: "linked",
  logLevel: "error",
};

/** Bundled CommonJS modules call `require` for Node's own modules, which an ES module does not have. */
const REQUIRE =
  'import { createRequire as requireFrom } from "node:module"; const require = requireFrom(import.meta.url);';

const PACKAGES = {
  /** @param {string} folder */
  async purser(folder) {
    await library(folder, ["index"], undefined);
    await build({
      ...COMMON,
      absWorkingDir: folder,
      entryPoints: { cli: "src/bin.ts" },
      outdir: "dist",
      format: "esm",
      splitting: true,
      // A command-line program that is not debugged by its users, and the MCP library is large: so it is
      // minified.
      minifySyntax: true,
      minifyWhitespace: true,
      chunkNames: "cli-[name]-[hash]",
      banner: { js: REQUIRE },
    });
  },
  /** @param {string} folder */
  async paywall(folder) {
    await library(folder, ["paywall", "mcp"], REQUIRE);
    const assets = join(folder, "dist", "assets");
    mkdirSync(assets);
    for (const name of readdirSync(join(folder, "src", "assets")))
      copyFileSync(join(folder, "src", "assets", name), join(assets, name));
    for (const font of ["geist", "geist-mono"]) {
      const file = resolve(`@fontsource-variable/${font}/files/${font}-latin-wght-normal.woff2`);
      copyFileSync(file, join(assets, `${font}.woff2`));
      copyFileSync(join(dirname(dirname(file)), "LICENSE"), join(assets, `${font}.LICENSE`));
    }
  },
};

/** Builds both module systems, and the types for each. */
async function library(
  /** @type {string} */ folder,
  /** @type {string[]} */ entries,
  /** @type {string | undefined} */ esmBanner,
) {
  const { dependencies = {}, peerDependencies = {} } = JSON.parse(
    readFileSync(join(folder, "package.json"), "utf8"),
  );
  const external = Object.keys({ ...dependencies, ...peerDependencies }).flatMap((name) => [
    name,
    `${name}/*`,
  ]);
  const formats = [
    { format: "esm", extension: ".js", ...(esmBanner && { banner: { js: esmBanner } }) },
    {
      format: "cjs",
      extension: ".cjs",
      define: { "import.meta.url": "ownUrl" },
      banner: { js: 'const ownUrl = require("node:url").pathToFileURL(__filename).href;' },
    },
  ];
  for (const { extension, ...format } of formats)
    for (const [nth, entry] of entries.entries())
      await build({
        ...COMMON,
        minifySyntax: true,
        .../** @type {import("esbuild").BuildOptions} */ (format),
        absWorkingDir: folder,
        entryPoints: [`src/${entry}.ts`],
        outdir: "dist",
        outExtension: { ".js": extension },
        external,
        plugins: nth === 0 ? [] : [loadedFrom(`./${entries[0]}${extension}`)],
      });
  await promisify(execFile)(TSC, ["-p", folder]);
  const dist = join(folder, "dist");
  const needed = typesOf(dist, entries);
  for (const name of readdirSync(dist).filter((file) => file.endsWith(".d.ts"))) {
    if (!needed.has(name)) {
      rmSync(join(dist, name));
      continue;
    }
    const types = readFileSync(join(dist, name), "utf8");
    const importing = (/** @type {string} */ extension) =>
      types.replaceAll(/(from |import\()"(\.\/[^"]+)\.ts"/g, `$1"$2.${extension}"`);
    writeFileSync(join(dist, name), importing("js"));
    writeFileSync(join(dist, name.replace(/ts$/, "cts")), importing("cjs"));
    // TypeScript's `node10` does not read `exports`, so it needs the files that those stand for.
    mkdirSync(join(dist, "node10"), { recursive: true });
    writeFileSync(
      join(dist, "node10", name),
      importing("js").replaceAll(/"@x402\/core\/(\w+)"/g, '"@x402/core/dist/cjs/$1/index.js"'),
    );
  }
}

/** The files with types that the entries lead to. The others describe modules that nobody can import. */
function typesOf(/** @type {string} */ dist, /** @type {string[]} */ entries) {
  const found = new Set(entries.map((entry) => `${entry}.d.ts`));
  for (const name of found)
    for (const [, module] of readFileSync(join(dist, name), "utf8").matchAll(/"\.\/([^"]+)\.ts"/g))
      found.add(`${module}.d.ts`);
  return found;
}

/** What the first entry exports is loaded from it by the others. Shared chunks would contain what nobody uses. */
const loadedFrom = (/** @type {string} */ first) => ({
  name: "loaded-from-first",
  setup: (/** @type {import("esbuild").PluginBuild} */ plugin) =>
    plugin.onResolve({ filter: /^\.\/(cashier|channel-store|networks)\.ts$/ }, () => ({
      path: first,
      external: true,
    })),
});

const named = process.argv.slice(2);
for (const [name, make] of Object.entries(PACKAGES)) {
  if (named.length > 0 && !named.includes(name)) continue;
  const folder = join(HERE, name);
  rmSync(join(folder, "dist"), { recursive: true, force: true });
  await make(folder);
}
