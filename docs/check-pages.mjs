// What would lead a reader of the documentation nowhere. The site's build and test/unit/doc-pages.test.ts use this.
import { existsSync, readdirSync, readFileSync } from "node:fs";
import { dirname, join, normalize } from "node:path";
import { fileURLToPath } from "node:url";

const ROOT = fileURLToPath(new URL("..", import.meta.url));
/** A page is one idea, read at once. Pages that are written from code are as long as the code has entries. */
const MOST_BYTES = 8_192;
const GENERATED = "Written by `npm run derive`";
/** A path from the root, or of a test without its ending: `spending/crashes`. */
const PATH = /^([\w.-]+)\/[\w./-]+$/;

/** @returns {Map<string, string>} texts of all pages by path from the root, README.md among them */
export function readPages(root = ROOT) {
  const names = readdirSync(join(root, "docs"), { recursive: true, encoding: "utf8" })
    .filter((name) => name.endsWith(".md") && !/(^|\/)(node_modules|\.vitepress)\//.test(name))
    .map((name) => join("docs", name));
  return new Map(
    ["README.md", ...names].map((name) => [name, readFileSync(join(root, name), "utf8")]),
  );
}

/**
 * @param {Map<string, string>} pages
 * @param {(path: string) => boolean} exists
 * @returns {string[]} one line for each fault
 */
export function faultsOf(pages, exists = (path) => existsSync(join(ROOT, path))) {
  const faults = [];
  const linked = new Set(["README.md", "docs/index.md"]);
  for (const [page, text] of pages) {
    if (
      page.startsWith("docs/") &&
      !text.includes(GENERATED) &&
      Buffer.byteLength(squeezed(text)) > MOST_BYTES
    )
      faults.push(`${page}: longer than ${MOST_BYTES} bytes`);
    const prose = withoutFences(text);
    for (const [, path = ""] of prose.matchAll(/`([^`\n]+)`/g)) {
      const [, folder] = PATH.exec(path) ?? [];
      if (folder === undefined || !(exists(folder) || exists(join("test", folder)))) continue;
      const isThere = [path, join("test", path), join("test", `${path}.test.ts`)].some((one) =>
        exists(one),
      );
      if (!isThere) faults.push(`${page}: there is no ${path}`);
    }
    for (const [, link = ""] of prose.replaceAll(/`[^`\n]*`/g, "").matchAll(/\]\(([^()\s]+)\)/g)) {
      if (/^[a-z]+:/.test(link)) continue;
      const [path = "", anchor] = link.split("#");
      const target = path === "" ? page : normalize(join(dirname(page), path));
      if (!exists(target)) faults.push(`${page}: dead link ${link}`);
      else if (page.startsWith("docs/") && !target.startsWith("docs/"))
        faults.push(`${page}: ${link} is not part of the site`);
      else if (pages.has(target)) {
        if (target !== page) linked.add(target);
        if (anchor && !anchorsOf(withoutFences(pages.get(target) ?? "")).has(anchor))
          faults.push(`${page}: no heading for ${link}`);
      }
    }
  }
  for (const page of pages.keys())
    if (!linked.has(page)) faults.push(`${page}: no page links to it`);
  return faults;
}

/** @param {string} text */
const withoutFences = (text) => text.replaceAll(/^```[\s\S]*?^```/gm, "");

/** Tables are padded for those who edit them. @param {string} text */
const squeezed = (text) => text.replaceAll(/ {2,}/g, " ").replaceAll(/-{4,}/g, "---");

/** As the forges make a heading's anchor; the site makes the same ones. @param {string} title */
export const anchorOf = (title) =>
  title
    .replaceAll(/[^\p{L}\p{N}\s_-]/gu, "")
    .trim()
    .toLowerCase()
    .replaceAll(/\s/g, "-");

/** @param {string} text */
function anchorsOf(text) {
  const headings = [...text.matchAll(/^#+ (.+)$/gm)].map(([, title = ""]) => anchorOf(title));
  return new Set([...headings, ...[...text.matchAll(/<a id="([^"]+)">/g)].map(([, id]) => id)]);
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  const faults = faultsOf(readPages());
  for (const fault of faults) console.error(fault);
  if (faults.length > 0) process.exitCode = 1;
}
