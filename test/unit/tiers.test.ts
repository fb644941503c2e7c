// Goal: every file left out of the default tier is in docs/contributing/tests.md with its reason, and no other.
import { readdirSync, readFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import t from "tap";

const ROOT = fileURLToPath(new URL("../../", import.meta.url));
const ALONE = /^\/\/ (Own process|Runs alone)\b/m;
const TIER = /^\/\/ Tier: full \((.+)\)\.$/m;

const files = readdirSync(`${ROOT}test`, { recursive: true, encoding: "utf8" }).filter((name) =>
  name.endsWith(".test.ts"),
);
const heads = new Map(
  files.map((name) => [name, readFileSync(`${ROOT}test/${name}`, "utf8").slice(0, 2000)]),
);

/** Files in the table's first column: `folder/name`, or `folder/`: `name`, `name`. */
function named(): string[] {
  const text = readFileSync(`${ROOT}docs/contributing/tests.md`, "utf8");
  const [, table = ""] = /## What the full tier has\n([\s\S]*?)(?:\n## |$)/.exec(text) ?? [];
  return table.split("\n").flatMap((row) => {
    const [, cell = "", why = ""] = row.split("|").map((part) => part.trim());
    if (!cell.includes("`") || why === "") return [];
    return cell.split(";").flatMap((part) => {
      // "with all" or "in every": a part of the file is in the default tier.
      if (/ (in every|with all) /.test(part)) return [];
      const [, folder = "", names = part] = /^\s*`(\w[\w-]*\/)`:(.*)$/.exec(part) ?? [];
      return [...names.matchAll(/`([^`]+)`/g)].map(([, name]) => `${folder}${name}.test.ts`);
    });
  });
}

t.test("the table names the files with a tier line, and no others", async (t) => {
  const full = [...heads].filter(([, head]) => TIER.test(head)).map(([name]) => name);
  t.ok(full.length > 10);
  t.same(named().sort(), full.sort());
});

t.test("a malformed tier line is noticed", async (t) => {
  for (const [name, head] of heads) if (/^\/\/ Tier\b/m.test(head)) t.match(head, TIER, name);
});

t.test("a hook of a whole file reaches no other file", async (t) => {
  // Files of one process share its root test.
  for (const [name, head] of heads) {
    const text = readFileSync(`${ROOT}test/${name}`, "utf8");
    if (/^t\.(beforeEach|afterEach)\(/m.test(text)) t.match(head, ALONE, name);
  }
});

t.test("the runner sees every mark: each is at the start of a line", async (t) => {
  const HIDDEN = /^\/\/ .+\b(Own process|Runs alone|Tier: full) \(/m;
  for (const [name, head] of heads) t.notMatch(head, HIDDEN, name);
});
