// Goal: stack traces of the compiled server are mapped to source lines, and other errors are unchanged.
import { execFile } from "node:child_process";
import { mkdir, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { pathToFileURL } from "node:url";
import { promisify } from "node:util";
import { build } from "esbuild";
import t from "tap";
import { withSourceLocations } from "../../server/infra/source-places.ts";

const run = promisify(execFile);
const SOURCE = `interface Gone { so: "that lines move" }

export function fail(gone?: Gone): never {
  throw new Error(String(gone?.so));
}
`;

t.test("a compiled file is mapped to its source", async (t) => {
  const server = join(t.testdir(), "server");
  await mkdir(join(server, "dist"), { recursive: true });
  await writeFile(join(server, "thing.ts"), SOURCE);
  const outfile = join(server, "dist", "thing.js");
  await build({
    entryPoints: [join(server, "thing.ts")],
    outfile,
    format: "esm",
    sourcemap: true,
    sourcesContent: false,
  });
  // In a process without source maps of its own.
  const script = `import { fail } from ${JSON.stringify(pathToFileURL(outfile).href)};
    try { fail() } catch ({ stack }) { console.log(stack) }`;
  const { stdout: stack } = await run(process.execPath, ["--input-type=module", "-e", script], {
    env: {},
  });
  t.match(stack, /dist\/thing\.js:2:/, "where it was thrown");
  t.match(withSourceLocations(stack), /server\/thing\.ts:4:9/, "where it was written");
  t.notMatch(withSourceLocations(stack), /thing\.js/);
});

t.test("a file that is not compiled, or has no map, is unchanged", async (t) => {
  const stack = stackOf(() => {
    throw new Error("here");
  });
  t.equal(withSourceLocations(stack), stack);
  const nowhere = "Error: x\n    at f (/nowhere/server/dist/main.js:10:3)";
  t.equal(withSourceLocations(nowhere), nowhere);
});

t.test("code added by the compiler has no source, and is unchanged", async (t) => {
  const dist = join(t.testdir(), "server", "dist");
  await mkdir(dist, { recursive: true });
  const map = { version: 3, names: [], sources: ["../thing.ts"], mappings: "A;AAAA" };
  await writeFile(join(dist, "added.js.map"), JSON.stringify(map));
  const stack = `Error: x\n    at f (${join(dist, "added.js")}:1:1)`;
  t.equal(withSourceLocations(stack), stack);
});

function stackOf(fail: () => never): string {
  try {
    return fail();
  } catch (error) {
    return (error as Error).stack ?? "";
  }
}
