// Goal: the example files are what the service and the custody process read, complete but for the secrets, and none of
// them starts with a secret that everybody knows.
import { randomBytes } from "node:crypto";
import { readdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import t from "tap";
import {
  ConfigError,
  loadConfig,
  readTexts,
  type Environment,
  type Part,
} from "../../server/config.ts";

const FOLDER = fileURLToPath(new URL("../../ops/examples/", import.meta.url));
const FILES = readdirSync(FOLDER);
const partOf = (file: string): Part => (file.includes("custody") ? "custody" : "service");

/** As a service manager reads it: no quotes, no substitution. */
function readExample(file: string): Record<string, string> {
  const lines = readFileSync(join(FOLDER, file), "utf8").split("\n");
  const entries = lines.flatMap((line) => {
    if (line === "" || line.startsWith("#")) return [];
    const [, key = "", value = ""] = /^([A-Z0-9_]+)=(.+)$/.exec(line) ?? [];
    if (key === "") throw new Error(`${file}: ${line}`);
    return [[key, value] as const];
  });
  return Object.fromEntries(entries);
}

/** With a secret of its own in each place. */
const filled = (key: string, value: string): string =>
  key === "RELAYER_PRIVATE_KEYS"
    ? `0x${randomBytes(32).toString("hex")}`
    : value.replaceAll("change-me", () =>
        randomBytes(32).toString(key === "MASTER_KEYS" ? "base64" : "hex"),
      );

function problemsOf(environment: Environment, part: Part): string[] {
  try {
    loadConfig(environment, part);
    return [];
  } catch (error) {
    if (!(error instanceof ConfigError)) throw error;
    return error.problems;
  }
}

const placeholderIn = (key: string): string =>
  `${key} still has the placeholder of an example: replace it`;

t.test("there is one for each size, and for each custody process", async (t) => {
  t.same(FILES.toSorted(), [
    "large-custody.env",
    "large.env",
    "medium-custody.env",
    "medium.env",
    "small.env",
  ]);
});

for (const file of FILES) {
  const part = partOf(file);
  const example = readExample(file);
  const entries = Object.entries(example);
  const secrets = entries.filter(([, value]) => value.includes("change-me")).map(([key]) => key);
  const complete = Object.fromEntries(entries.map(([key, value]) => [key, filled(key, value)]));

  t.test(`${file}: every key is read`, async (t) => {
    for (const key of Object.keys(example)) t.ok(readTexts({ [key]: "x" }, part, []).has(key), key);
  });

  t.test(`${file}: complete with the secrets of an operator`, async (t) => {
    t.same(problemsOf(complete, part), []);
    t.equal(loadConfig(complete, part).mode, "production");
  });

  t.test(`${file}: each placeholder that is left is refused by name`, async (t) => {
    t.ok(secrets.length >= 3);
    for (const key of secrets) {
      const problems = problemsOf({ ...complete, [key]: example[key] }, part);
      t.same(problems, [placeholderIn(key)], "once");
    }
    t.same(problemsOf(example, part).toSorted(), secrets.map(placeholderIn).toSorted());
  });
}

t.test("a placeholder in a secret's file is refused too", async (t) => {
  const path = join(t.testdir(), "token");
  writeFileSync(path, "change-me-change-me\n");
  t.same(problemsOf({ METRICS_TOKEN_FILE: path }, "service"), [
    "METRICS_TOKEN_FILE names a file with the placeholder of an example: replace it",
  ]);
  t.same(problemsOf({ METRICS_TOKEN_FILE: "/run/change-me" }, "service"), [
    placeholderIn("METRICS_TOKEN_FILE"),
  ]);
});
