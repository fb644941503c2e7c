// Goal: the documentation has no dead links, unknown headings, unlinked pages, references to removed code or overlong pages.
import t from "tap";
import { anchorOf, faultsOf, readPages } from "../../docs/check-pages.mjs";
import { faultsOfSite } from "../../docs/check-site.mjs";
import { AGENT_PAGES } from "../../server/plugins/meta/skill.ts";

t.test("the pages have no fault", async (t) => {
  const pages = readPages();
  t.ok(pages.size > 80, `${pages.size} pages`);
  t.same(faultsOf(pages), []);
});

t.test("the pages that /llms.txt names exist", async (t) => {
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
    ["docs/index.md", "[gone](a.md#three) [out](../README.md)"],
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
      "docs/index.md: ../README.md is not part of the site",
      "docs/lonely.md: longer than 8192 bytes",
      "docs/lonely.md: no page links to it",
      "docs/long.md: no page links to it",
    ],
  );
});

t.test("an anchor is made from its heading as GitHub does it", async (t) => {
  t.equal(anchorOf("`daily_limit_exceeded`"), "daily_limit_exceeded");
  t.equal(anchorOf("4. When your server is away"), "4-when-your-server-is-away");
});

t.test("each kind of fault of the built site is found", async (t) => {
  const folder = t.testdir({
    "index.html": `<h1 id="top">Docs</h1> <a class="x" href="/docs/a">a</a> <a href="/docs/a#one">b</a> <a href="#top">c</a>
      <a href="/openapi.json">of the service</a> <a href="https://example.com/docs/none">elsewhere</a>
      <img src="/docs/there.svg" alt=""> <a href="/docs/folder/">d</a>`,
    "a.html": `<h2 id="one">One</h2> <a href="./none">x</a> <a href="/docs/#two">y</a> <img alt="" src="/docs/none.svg"> <p style="color: red">z</p>`,
    "there.svg": "",
    folder: {
      "index.html": `<a href="../a.html">by its file</a> <a href="../folder">no page without the slash</a>`,
    },
  });
  t.same(faultsOfSite(folder, "/docs/").toSorted(), [
    "/docs/a: a style in the page, which the content policy forbids",
    "/docs/a: dead link ./none",
    "/docs/a: dead link /docs/none.svg",
    "/docs/a: no heading for /docs/#two",
  ]);
});
