// Goal: every planted defect still fits the present source, so that a simulation which does not find it says something.
import { existsSync, readFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { build, type Plugin } from "esbuild";
import t from "tap";
import { ROOT } from "../../server/infra/root.ts";
import {
  apply,
  DEFECTS,
  defectOf,
  filesOf,
  plantedFunctions,
  plantedIn,
} from "../simulation/planted/index.ts";

const sourceOf = (file: string): string => readFileSync(new URL(file, ROOT), "utf8");

async function compiled(file: string, plugins: Plugin[]): Promise<string | undefined> {
  const absWorkingDir = fileURLToPath(ROOT);
  const { outputFiles } = await build({
    absWorkingDir,
    entryPoints: [file],
    write: false,
    plugins,
  });
  return outputFiles[0]?.text;
}

t.test("names are unique and can be typed", async (t) => {
  const names = DEFECTS.map(({ name }) => name);
  t.equal(new Set(names).size, names.length);
  for (const name of names) t.match(name, /^[a-z0-9]+(-[a-z0-9]+)*$/);
});

for (const defect of DEFECTS)
  t.test(defect.name, async (t) => {
    const { name, caughtBy } = defect;
    const functions = await plantedFunctions(name);
    for (const file of filesOf(defect)) {
      const source = sourceOf(file);
      const changed = apply(source, file, name);
      t.not(changed, source);
      const ofSql = /(\w+)\.sql$/.exec(file)?.[1];
      if (ofSql !== undefined) t.equal(functions.get(ofSql), changed);
      else t.not(await compiled(file, [plantedIn(name)]), await compiled(file, []));
    }
    t.ok(existsSync(new URL(caughtBy, ROOT)), caughtBy);
  });

t.test("a patch that fits nowhere or twice is refused", async (t) => {
  const [{ name, file, changes }] = DEFECTS as [(typeof DEFECTS)[number]];
  const find = changes[0]?.find ?? "";
  t.throws(() => apply("nothing of it", file, name), { message: /must have this once/ });
  t.throws(() => apply(`${find}${find}`, file, name), { message: /must have this once/ });
  t.equal(apply(find, "server/app.ts", name), find, "another file stays as it is");
  t.throws(() => defectOf("no-such-defect"), { message: /no-such-defect/ });
});
