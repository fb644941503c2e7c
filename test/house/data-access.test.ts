// Goal: Postgres is spoken to through Prisma; SQL by hand is the exception, with its reason beside it and in the README.
import { readdir, readFile } from "node:fs/promises";
import { dirname, relative } from "node:path";
import { fileURLToPath } from "node:url";
import t from "tap";

const ROOT = fileURLToPath(new URL("../../", import.meta.url));

/** Nothing but such statements: the reason stands once, in the README. */
const TOLD_ONCE = [
  "server/plugins/guardrails/",
  "server/plugins/settlement/",
  "server/plugins/withdrawals/store.ts",
  "server/infra/db/functions.ts",
  "server/infra/db/migrate.ts",
  "server/infra/db/listener.ts",
  "server/infra/db/pool.ts",
  "server/local/",
];
const RAW = /\.query(<[^()]*>)?\(|\$(query|execute)Raw(Unsafe)?\b/;
/** Lines between the reason and the call, when the formatter breaks a call over several. */
const REACH = 3;

interface Found {
  line: number;
  text: string;
  reason: boolean;
}

/** Statements written by hand, by the line they begin at; comments and types are none. */
function rawStatements(source: string): Found[] {
  const lines = source.split("\n");
  return lines.flatMap((text, index) => {
    const code = text.replace(/^\s*(\/\/|\*|\/\*).*/, "");
    if (!RAW.test(code)) return [];
    const above = lines.slice(Math.max(0, index - REACH), index).join("\n");
    return { line: index + 1, text: text.trim(), reason: /\/\/ SQL: \S+ \S+.*/.test(above) };
  });
}

async function models(): Promise<string[]> {
  const schema = await readFile(`${ROOT}prisma/schema.prisma`, "utf8");
  return [...schema.matchAll(/^model (\w)(\w+) \{/gm)].map(
    ([, first = "", rest = ""]) => first.toLowerCase() + rest,
  );
}

async function serverSources(): Promise<{ path: string; source: string }[]> {
  const entries = await readdir(`${ROOT}server`, { recursive: true, withFileTypes: true });
  const files = entries
    .filter((entry) => entry.isFile() && /\.m?ts$/.test(entry.name))
    .map((entry) => relative(ROOT, `${entry.parentPath}/${entry.name}`))
    .filter((path) => !path.startsWith("server/generated/") && !path.endsWith(".d.mts"))
    .sort();
  return Promise.all(
    files.map(async (path) => ({ path, source: await readFile(`${ROOT}${path}`, "utf8") })),
  );
}

/** The paths of the README's table of statements written by hand. */
async function listed(): Promise<string[]> {
  const readme = await readFile(`${ROOT}README.md`, "utf8");
  const section = /\n### Database\n([\s\S]*?)\n##/.exec(readme)?.[1] ?? "";
  return [...section.matchAll(/^\| \[[^\]]+\]\((server\/[^)]+)\)/gm)].map(([, path = ""]) => path);
}

const isIn = (path: string, places: readonly string[]): boolean =>
  places.some((place) => path === place || path.startsWith(place.replace(/\/?$/, "/")));

t.test("the reader knows a statement from what only looks like one", async (t) => {
  const found = rawStatements(
    [
      "// SQL: a lock, which Prisma has no word for.",
      "await tx.$queryRaw`SELECT 1`;",
      "const page = readPage(request.query);",
      "// a comment about sql.query(text)",
      "export type Sql = Pick<Pool, 'query'>;",
      "const { rows } = await sql.query<Row & { told: boolean }>(",
    ].join("\n"),
  );
  t.same(
    found.map(({ line, reason }) => [line, reason]),
    [
      [2, true],
      [6, false],
    ],
  );
});

t.test("each statement written by hand says why, in a place the README names", async (t) => {
  const names = await models();
  const places = await listed();
  t.ok(names.length > 15 && places.length > 5, "the schema and the README's table were read");
  const client = new RegExp(String.raw`\.(${names.join("|")})\.\w+\(`, "g");
  const used = new Set<string>();
  let prismaCalls = 0;
  let rawCalls = 0;
  for (const { path, source } of await serverSources()) {
    const calls = source.match(client)?.length ?? 0;
    const raw = rawStatements(source);
    prismaCalls += calls;
    rawCalls += raw.length;
    if (calls + raw.length > 0) t.comment(`${path}: ${calls} through Prisma, ${raw.length} raw`);
    if (raw.length === 0) continue;
    for (const place of places) if (isIn(path, [place])) used.add(place);
    t.ok(isIn(path, places), `${path} is in the README's table of statements written by hand`);
    if (isIn(path, TOLD_ONCE)) continue;
    for (const { line, text, reason } of raw)
      t.ok(reason, `${path}:${line} has its "// SQL:" reason above it: ${text}`);
  }
  t.comment(`in all: ${prismaCalls} through Prisma, ${rawCalls} raw`);
  t.same(
    places.filter((place) => !used.has(place)),
    [],
    "the README names no place without one",
  );
});

t.test("modules of the app keep rows through Prisma", async (t) => {
  const client = new RegExp(String.raw`\.(${(await models()).join("|")})\.\w+\(`);
  const speaking = new Set(
    (await serverSources())
      .filter(({ source }) => client.test(source))
      .map(({ path }) => dirname(path).split("/").at(-1)),
  );
  for (const module of ["owners", "auth", "agents", "custody", "listings", "marketplace"])
    t.ok(speaking.has(module), module);
  for (const module of ["books", "payments", "x402-client", "facilitator", "meta"])
    t.ok(speaking.has(module), module);
});
