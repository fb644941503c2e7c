// Goal: a page of the documentation leads nobody nowhere: dead links, unknown headings, pages that nobody links to, code that is gone, and pages too long to read are found.
import t from "tap";
import { faultsOf, readPages } from "../../docs/check-pages.mjs";
import { AGENT_PAGES } from "../../server/plugins/meta/skill.ts";

t.test("the pages", async (t) => {
  const pages = readPages();
  t.ok(pages.size > 80, `${pages.size} pages`);
  t.same(faultsOf(pages), []);
});

t.test("the pages that /llms.txt names", async (t) => {
  const pages = readPages();
  for (const [path, title] of Object.entries(AGENT_PAGES))
    t.ok(
      pages.get(`docs/${path}.md`)?.includes(`\n# ${title}\n`) ||
        pages.get(`docs/${path}.md`)?.startsWith(`# ${title}\n`),
      path,
    );
});

t.test("each kind of fault is found", async (t) => {
  const pages = new Map([
    [
      "README.md",
      "[a](docs/a.md) [b](docs/a.md#two) [c](docs/none.md) `server/none.ts` `server/main.ts` `unit/a` `unit/b`",
    ],
    ["docs/index.md", "[gone](a.md#three)"],
    ["docs/a.md", "# One\n\n## Two\n\n```sh\n# not a heading\n[x](y.md)\n```"],
    ["docs/lonely.md", `# Lonely\n\n${"word ".repeat(2_000)}`],
    ["docs/long.md", `# Written by \`npm run derive\`\n\n${"word ".repeat(2_000)} [self](long.md)`],
  ]);
  const there = new Set([
    ...pages.keys(),
    "server",
    "server/main.ts",
    "test/unit",
    "test/unit/a.test.ts",
  ]);
  t.same(
    faultsOf(pages, (path) => there.has(path)),
    [
      "README.md: there is no server/none.ts",
      "README.md: there is no unit/b",
      "README.md: dead link docs/none.md",
      "docs/index.md: no heading for a.md#three",
      "docs/lonely.md: longer than 8192 bytes",
      "docs/lonely.md: no page links to it",
      "docs/long.md: no page links to it",
    ],
  );
});
