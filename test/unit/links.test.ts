// Goal: every file, heading and decision that a page or comment refers to is in the repository.
import { existsSync, readdirSync, readFileSync, statSync } from "node:fs";
import { dirname, join, relative } from "node:path";
import { fileURLToPath } from "node:url";
import t from "tap";

const ROOT = fileURLToPath(new URL("../..", import.meta.url));
const CODE = ["server", "web/src", "test", "prisma"];

const filesIn = (folder: string, ending: RegExp, recursive = true): string[] =>
  readdirSync(join(ROOT, folder), { recursive, encoding: "utf8" })
    .filter((name) => ending.test(name) && !/(^|\/)(generated|node_modules)\//.test(name))
    .map((name) => join(folder, name));
const textOf = (file: string): string => readFileSync(join(ROOT, file), "utf8");

const pages = [...filesIn(".", /\.md$/, false), ...filesIn("docs", /\.md$/)];

t.test("every relative link of every page has a target", async (t) => {
  t.ok(pages.includes("README.md") && pages.length > 15, `${pages.length} pages`);
  for (const page of pages) t.same(deadLinks(page, textOf(page)), [], page);
});

t.test("a dead link is noticed", async (t) => {
  const text = [
    "# One & two",
    "[a](README.md) [b](README.md#production) [c](#one--two) [d](https://example.com/x) [e](docs)",
    "[f](NOWHERE.md) [g](README.md#nowhere) [h](#nowhere) [i](docs/nowhere/) `[j](code.md)` [m](docs)(docs)",
    "```sh\n# not a heading\n[k](fenced.md)\n```",
    "[l](#not-a-heading)",
  ].join("\n");
  t.same(deadLinks("PAGE.md", text), [
    "NOWHERE.md",
    "README.md#nowhere",
    "#nowhere",
    "docs/nowhere/",
    "#not-a-heading",
    "(docs)",
  ]);
});

t.test("every decision is once in the list of decisions", async (t) => {
  const list = textOf("docs/decisions/README.md");
  const numbers = new Set<string>();
  for (const page of filesIn("docs/decisions", /\/?\d{4}-[a-z0-9-]+\.md$/)) {
    const name = page.slice("docs/decisions/".length);
    const number = name.slice(0, 4);
    t.notOk(numbers.has(number), `${number} is used once`);
    numbers.add(number);
    t.equal(list.split(`[${number}](${name})`).length, 2, `${name} is listed once`);
    t.match(textOf(page), new RegExp(`^# ${number} `), `${name} has its number in its title`);
  }
});

t.test("comments cite only pages of this repository, RFCs and EIPs", async (t) => {
  const decisions = readdirSync(join(ROOT, "docs/decisions")).map((name) => name.slice(0, 4));
  const files = CODE.flatMap((folder) => filesIn(folder, /\.(tsx?|m[jt]s|sql|css|prisma)$/));
  t.ok(files.length > 300, `${files.length} files`);
  const own = relative(ROOT, fileURLToPath(import.meta.url));
  for (const file of files.filter((name) => name !== own))
    t.same(badCitations(textOf(file), decisions), [], file);
});

t.test("a citation of something outside the repository is noticed", async (t) => {
  const text = `// RFC 9110 section 7.6.1, EIP-712 section 3, docs/decisions/0001, docs/decisions/9999
    // design section 7; see DESIGN.md`;
  t.same(badCitations(text, ["0001"]), ["section 7", "DESIGN.md", "docs/decisions/9999"]);
});

function deadLinks(page: string, text: string): string[] {
  const prose = withoutCode(text);
  const links = [...prose.matchAll(/\]\(([^()\s]+)\)/g)].map(([, link = ""]) => link);
  // A second address right behind a link is shown to the reader as text.
  const doubled = [...prose.matchAll(/\]\([^()\s]+\)(\([^()\s]+\))/g)].map(([, rest = ""]) => rest);
  return [
    ...links.filter((link) => !/^[a-z]+:/.test(link) && !isAlive(page, prose, link)),
    ...doubled,
  ];
}

function isAlive(page: string, prose: string, link: string): boolean {
  const [path = "", anchor] = link.split("#");
  const target = path === "" ? page : join(dirname(page), path);
  if (path !== "" && (target.startsWith("..") || !existsSync(join(ROOT, target)))) return false;
  if (anchor === undefined) return true;
  if (path !== "" && (statSync(join(ROOT, target)).isDirectory() || !target.endsWith(".md")))
    return false;
  const there = path === "" ? prose : withoutCode(textOf(target));
  return headingsOf(there).includes(anchor);
}

function withoutCode(text: string): string {
  return text.replaceAll(/^```[\s\S]*?^```/gm, "").replaceAll(/`[^`\n]*`/g, (code) =>
    // A heading keeps the text of its code; a link inside code is not a link.
    code.replaceAll(/[[\]()`]/g, ""),
  );
}

/** As GitHub makes anchors: lower case, words joined by hyphens, other signs left out. */
function headingsOf(prose: string): string[] {
  return [...prose.matchAll(/^#+ (.+)$/gm)].map(([, title = ""]) =>
    title
      .trim()
      .toLowerCase()
      .replaceAll(/[^\p{L}\p{N}\s_-]/gu, "")
      .replaceAll(" ", "-"),
  );
}

function badCitations(text: string, decisions: readonly string[]): string[] {
  const sections = text.matchAll(/(?<!(RFC \d+|EIP-\d+) )\bsection \d+|\bDESIGN(\.md)?\b/g);
  const pages = text.matchAll(/docs\/decisions\/(\d{4})/g);
  return [
    ...[...sections].map(([citation]) => citation),
    ...[...pages].filter(([, number = ""]) => !decisions.includes(number)).map(([path]) => path),
  ];
}
