// What is done with the built site: its links are followed as a browser would, and its files are compressed.
import { existsSync, readdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { brotliCompressSync, constants, gzipSync } from "node:zlib";

const MIN_BYTES = 1024;

/** @param {string} folder @param {RegExp} ending */
const filesIn = (folder, ending) =>
  readdirSync(folder, { recursive: true, encoding: "utf8" }).filter((name) => ending.test(name));

/**
 * VitePress does not look for anchors, and follows links by the names of sources, not of what it builds.
 * @param {string} folder of the built site
 * @param {string} base the path it is served at, with a slash at both ends
 * @returns {string[]} one line for each fault
 */
export function faultsOfSite(folder, base) {
  /** @type {Map<string, { text: string, anchors: Set<string | undefined> }>} */
  const pages = new Map();
  for (const name of filesIn(folder, /\.html$/)) {
    const text = readFileSync(join(folder, name), "utf8");
    const anchors = new Set([...text.matchAll(/\sid="([^"]+)"/g)].map(([, id]) => id));
    pages.set(base + name.replace(/(^|\/)index\.html$|\.html$/, "$1"), { text, anchors });
  }
  const faults = new Set();
  for (const [page, { text }] of pages) {
    if (/ style="|<style/.test(text))
      faults.add(`${page}: a style in the page, which the content policy forbids`);
    for (const [, link = ""] of text.matchAll(
      /<(?:a|img|script|link) [^>]*?(?:href|src)="([^"]+)"/g,
    )) {
      if (/^[a-z]+:/.test(link)) continue;
      const { pathname, hash } = new URL(link, `http://site${page}`);
      // Other paths are the service's own.
      if (!pathname.startsWith(base)) continue;
      const target = pages.get(pathname);
      if (
        !target &&
        (pathname.endsWith("/") || !existsSync(join(folder, pathname.slice(base.length))))
      )
        faults.add(`${page}: dead link ${link}`);
      else if (target && hash && !target.anchors.has(decodeURIComponent(hash.slice(1))))
        faults.add(`${page}: no heading for ${link}`);
    }
  }
  return [...faults];
}

/** Compressed copies beside the files, so that the service sends them without work. @param {string} folder */
export function precompress(folder) {
  for (const name of filesIn(folder, /\.(?:html|js|css|svg)$/)) {
    const path = join(folder, name);
    const content = readFileSync(path);
    if (content.length < MIN_BYTES) continue;
    writeFileSync(`${path}.gz`, gzipSync(content));
    const params = { [constants.BROTLI_PARAM_QUALITY]: 5 };
    writeFileSync(`${path}.br`, brotliCompressSync(content, { params }));
  }
}
