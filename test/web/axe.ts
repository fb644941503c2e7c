// axe, for checks of what a page shows.
import { readFile } from "node:fs/promises";
import { createRequire } from "node:module";
import type { Page } from "playwright-core";

const axeSource = await readFile(
  createRequire(import.meta.url).resolve("axe-core/axe.min.js"),
  "utf8",
);
interface Violation {
  id: string;
  impact: string;
  nodes: { target: string[]; failureSummary: string }[];
}

/**
 * Injected by the debugger, so that the page's own Content-Security-Policy stays in force. Without motion: what still fades in has
 * less contrast than what people read.
 */
export async function addAxe(page: Page): Promise<void> {
  await page.emulateMedia({ reducedMotion: "reduce" });
  await page.addInitScript(axeSource);
}

/** What axe finds on the page, in every row of it. */
export async function violations(page: Page): Promise<string[]> {
  await page.evaluate(async () => {
    // Rows outside the viewport are not rendered, but axe must check all of them.
    const sheet = new CSSStyleSheet();
    sheet.replaceSync("* { content-visibility: visible !important; }");
    document.adoptedStyleSheets = [sheet];
    // Two frames, so that the theme is painted.
    await new Promise((done) => {
      requestAnimationFrame(() => requestAnimationFrame(done));
    });
  });
  const found = await page.evaluate(async () => {
    const { axe } = globalThis as unknown as {
      axe: { run(options: object): Promise<{ violations: Violation[] }> };
    };
    // `preload` would fetch every style sheet and video again, for rules about videos and rotation.
    return (await axe.run({ resultTypes: ["violations"], preload: false })).violations;
  });
  return found.flatMap(({ id, nodes }) =>
    nodes.map(({ target, failureSummary }) => `${id}: ${target.join(" ")}: ${failureSummary}`),
  );
}
