// The documentation site. Its pages are docs/**/*.md; the service serves what this builds at /docs/.
import { copyFileSync, readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { renderMermaidSVG } from "beautiful-mermaid";
import { createCssVariablesTheme } from "shiki";
import { defineConfig, type DefaultTheme } from "vitepress";
import { anchorOf } from "../check-pages.mjs";
import { faultsOfSite, precompress } from "../check-site.mjs";

const DOCS = fileURLToPath(new URL("..", import.meta.url));
/** The one file of the pages' folders that readers download. */
const AUDIT_SCRIPT = "how-to/check-audit.mjs";

interface Section {
  folder: string;
  text: string;
  /** These come first, in this order; the others follow by their titles. */
  first?: string[];
}

const USE: Section[] = [
  { folder: "tutorials", text: "Tutorials", first: ["first-agent", "first-paid-api"] },
  { folder: "how-to", text: "How to" },
  { folder: "reference", text: "Reference", first: ["configuration", "errors", "cli"] },
];
const EXPLANATION: Section[] = [
  {
    folder: "explanation",
    text: "Explanation",
    first: ["architecture", "payment-states", "exactly-once", "owner-signatures"],
  },
  { folder: "explanation/threat-model", text: "Threat model", first: ["index"] },
];
const OPERATIONS: Section[] = [
  { folder: "operations", text: "Operations", first: ["index", "deploy"] },
  { folder: "operations/alerts", text: "Alerts", first: ["index"] },
];
const CONTRIBUTING: Section[] = [
  { folder: "contributing", text: "Contributing", first: ["layout", "tests"] },
  { folder: "decisions", text: "Decisions", first: ["index"] },
];

const itemsOf = ({ folder, text, first = [] }: Section): DefaultTheme.SidebarItem => {
  const pages = readdirSync(join(DOCS, folder))
    .filter((name) => name.endsWith(".md"))
    .map((file) => {
      const [, title = file] =
        /^# (.+)$/m.exec(readFileSync(join(DOCS, folder, file), "utf8")) ?? [];
      const name = file === "README.md" ? "index" : file.slice(0, -".md".length);
      const place = first.indexOf(name);
      return {
        text: title,
        link: `/${folder}/${name === "index" ? "" : name}`,
        place: place < 0 ? first.length : place,
      };
    })
    .toSorted((a, b) => a.place - b.place || a.text.localeCompare(b.text));
  return { text, items: pages.map(({ text, link }) => ({ text, link })) };
};

/** Each page shows the section it is in, and the way to the others. */
function sidebar(): DefaultTheme.SidebarMulti {
  const others: DefaultTheme.SidebarItem = {
    text: "More",
    items: [
      { text: "Use Purser", link: "/" },
      { text: "Explanation", link: "/explanation/architecture" },
      { text: "Operations", link: "/operations/" },
      { text: "Contributing", link: "/contributing/layout" },
    ],
  };
  const of = (sections: Section[]) => [...sections.map(itemsOf), others];
  return {
    "/explanation/": of(EXPLANATION),
    "/operations/": of(OPERATIONS),
    "/contributing/": of(CONTRIBUTING),
    "/decisions/": of(CONTRIBUTING),
    "/": of(USE),
  };
}

export default defineConfig({
  title: "Purser",
  description: "A USDC wallet with limits for AI agents, and an x402 payment facilitator.",
  base: "/docs/",
  lang: "en",
  cleanUrls: true,
  // Otherwise each switch between light and dark inserts a style element, which the service's content policy forbids.
  appearance: { disableTransition: false },
  metaChunk: true,
  rewrites: { "decisions/README.md": "decisions/index.md" },
  head: [["link", { rel: "icon", href: "/favicon.svg", type: "image/svg+xml" }]],
  themeConfig: {
    logo: { src: "/favicon.svg", alt: "" },
    nav: [{ text: "API", link: "/reference/api" }],
    sidebar: sidebar(),
    outline: [2, 3],
    search: {
      provider: "local",
      options: {
        // The index needs the words of code, not its colours: a fifth of the build's time.
        _render: (source, env, md) => md.render(source.replaceAll(/^```[\w-]+$/gm, "```"), env),
      },
    },
  },
  // The content policy forbids style attributes; theme/style.css has these rules.
  transformHtml: (page) => page.replaceAll(/ style="[^"]*"/g, ""),
  buildEnd({ outDir }) {
    copyFileSync(join(DOCS, AUDIT_SCRIPT), join(outDir, AUDIT_SCRIPT));
    const faults = faultsOfSite(outDir, "/docs/");
    if (faults.length > 0) throw new Error(`the site has faults:\n${faults.join("\n")}`);
    precompress(outDir);
  },
  markdown: {
    theme: createCssVariablesTheme({ name: "purser" }),
    anchor: { slugify: anchorOf },
    codeTransformers: [
      {
        // A class for a colour instead of a style attribute.
        span(node) {
          const [, token] =
            /var\(--shiki-token-([a-z-]+)\)/.exec(String(node.properties.style)) ?? [];
          if (token) node.properties.class = `code-${token}`;
          delete node.properties.style;
        },
        pre(node) {
          delete node.properties.style;
        },
      },
    ],
    config(md) {
      // On a forge a folder's page is README.md; here it is the folder itself.
      md.core.ruler.push("folder-pages", ({ tokens }) => {
        for (const token of tokens.flatMap(({ children }) => children ?? [])) {
          const href = token.type === "link_open" ? token.attrGet("href") : null;
          if (href) token.attrSet("href", href.replace(/(^|\/)README(\.md)?(?=#|$)/, "$1index$2"));
        }
      });
      const fence = md.renderer.rules.fence;
      md.renderer.rules.fence = (tokens, index, ...rest) => {
        const token = tokens[index];
        if (token?.info.trim() !== "mermaid") return fence?.(tokens, index, ...rest) ?? "";
        const svg = renderMermaidSVG(token.content, {
          bg: "var(--vp-c-bg)",
          fg: "var(--vp-c-text-1)",
          transparent: true,
        });
        // Its style sheet loads a font from elsewhere; theme/style.css has the colours.
        const drawing = svg.replace(/<style>[^]*?<\/style>/, "");
        return `<figure class="diagram" v-pre>${drawing}</figure>`;
      };
    },
  },
});
