// Steps of a browser test, and screenshots of it: SCREENSHOTS=folder.
import { mkdirSync } from "node:fs";
import { join } from "node:path";
import type { Page } from "playwright-core";
import type { Test } from "tap";

export const PICTURES = process.env["SCREENSHOTS"];
export const SIZES = {
  desktop: { width: 1280, height: 900 },
  phone: { width: 390, height: 844 },
};

/** Skips the steps after a failed one, because they depend on it. */
export const stepsOf =
  (t: Test) =>
  async (name: string, work: (t: Test) => Promise<void>): Promise<void> => {
    if (t.passing()) await t.test(name, work);
  };

/** At both widths, light and dark; afterwards the page is wide and light again. */
export async function picture(page: Page, name: string, fullPage = false): Promise<void> {
  if (PICTURES === undefined) return;
  mkdirSync(PICTURES, { recursive: true });
  const look = async (colorScheme: "light" | "dark"): Promise<void> => {
    await page.emulateMedia({ colorScheme, reducedMotion: "reduce" });
    await page.locator(`[data-mantine-color-scheme=${colorScheme}]`).first().waitFor();
  };
  for (const [size, viewport] of Object.entries(SIZES))
    for (const colorScheme of ["light", "dark"] as const) {
      await page.setViewportSize(viewport);
      await look(colorScheme);
      const path = join(PICTURES, `${name}-${size}-${colorScheme}.png`);
      await page.screenshot({ path, fullPage });
    }
  await page.setViewportSize(SIZES.desktop);
  await look("light");
}
