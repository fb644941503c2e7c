// The documentation site. Its pages are docs/**/*.md; the service serves what this builds at /docs/.
import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { renderMermaidSVG } from "beautiful-mermaid";
import { defineConfig, type DefaultTheme } from "vitepress";

const DOCS = fileURLToPath(new URL("..", import.meta.url));

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
  metaChunk: true,
  rewrites: { "decisions/README.md": "decisions/index.md" },
  head: [["link", { rel: "icon", href: "/favicon.svg", type: "image/svg+xml" }]],
  themeConfig: {
    logo: { src: "/favicon.svg", alt: "" },
    nav: [{ text: "API", link: "/reference/api" }],
    sidebar: sidebar(),
    outline: [2, 3],
    search: { provider: "local" },
  },
  markdown: {
    config(md) {
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
