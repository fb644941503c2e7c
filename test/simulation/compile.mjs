// Compiles the simulation with the present sources of the service. The database driver and the HTTP client are replaced in
// them, and Prisma's clients are kept. A planted defect changes a source on the way.
import { join } from "node:path";
import { build } from "esbuild";
import { ROOT } from "../../server/local/bootstrap.mjs";
import { keepsItsPlace } from "../runner/keeps-its-place.mjs";

const HERE = join(ROOT, "test", "simulation");
/** @type {Record<string, string>} */
const REPLACED = { pg: "pg.ts", undici: "undici.ts" };
const USES_PRISMA = join(ROOT, "server", "infra", "db", "prisma.ts");

/** @type {import("esbuild").Plugin} */
const hasItsOwnWorld = {
  name: "has-its-own-world",
  setup(build) {
    build.onResolve({ filter: /^(pg|undici)$/ }, ({ path, importer }) =>
      importer.startsWith(HERE)
        ? { path, external: true }
        : { path: join(HERE, REPLACED[path] ?? path) },
    );
    build.onResolve({ filter: /generated\/prisma\/client\.ts$/ }, ({ importer }) =>
      importer === USES_PRISMA ? { path: join(HERE, "prisma-client.ts") } : undefined,
    );
  },
};

/**
 * @param {string} outdir
 * @param {import("esbuild").Plugin[]} plugins
 * @returns {Promise<string>} the compiled program
 */
export async function compileSimulation(outdir, plugins = []) {
  await build({
    absWorkingDir: ROOT,
    entryPoints: [join(HERE, "worker.ts")],
    outdir,
    outExtension: { ".js": ".mjs" },
    bundle: true,
    packages: "external",
    platform: "node",
    format: "esm",
    target: "node20",
    sourcemap: "linked",
    sourcesContent: false,
    logLevel: "error",
    plugins: [hasItsOwnWorld, ...plugins, keepsItsPlace()],
  });
  return join(outdir, "worker.mjs");
}
