/** `npm run icons`: the app's icons as PNG, drawn from web/public/favicon.svg by the tests' browser. They are committed. */
import { mkdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { chromium } from "playwright-core";
import { launchOptions } from "../test/helpers/bundled-browser.ts";

const PUBLIC = join(import.meta.dirname, "../web/public");
const favicon = readFileSync(join(PUBLIC, "favicon.svg"), "utf8");
const BACKGROUND = /<rect[^>]*\/>/;
const fill = /<rect[^>]*fill="([^"]+)"/.exec(favicon)?.[1] ?? "";

/** The whole square is filled, with a margin in which a system may cut a shape. */
const filled = (margin: number): string => {
  const size = 32 + 2 * margin;
  return favicon
    .replace('viewBox="0 0 32 32"', `viewBox="${-margin} ${-margin} ${size} ${size}"`)
    .replace(
      BACKGROUND,
      `<rect x="${-margin}" y="${-margin}" width="${size}" height="${size}" fill="${fill}"/>`,
    );
};
const ICONS = [
  { name: "192", size: 192, svg: favicon },
  { name: "512", size: 512, svg: favicon },
  { name: "maskable", size: 512, svg: filled(5) },
  { name: "apple-touch", size: 180, svg: filled(2) },
  // Systems draw only its shape.
  { name: "badge", size: 96, svg: favicon.replace(BACKGROUND, "").replace(/#d9674a/g, "#fff") },
];

const browser = await chromium.launch({ headless: true, ...(await launchOptions()) });
const page = await browser.newPage();
mkdirSync(join(PUBLIC, "icons"), { recursive: true });
for (const { name, size, svg } of ICONS) {
  await page.setViewportSize({ width: size, height: size });
  const sized = svg.replace(
    "<svg ",
    `<svg width="${size}" height="${size}" style="display:block" `,
  );
  await page.setContent(`<body style="margin:0">${sized}</body>`);
  await page.screenshot({ path: join(PUBLIC, "icons", `${name}.png`), omitBackground: true });
}
await browser.close();
