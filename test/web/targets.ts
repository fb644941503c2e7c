// What fingers press on a page, and whether it is large enough for them.
import type { Page } from "playwright-core";

/** Links and controls lower or narrower than 44 pixels, except links inside a sentence. */
export const smallTargets = (page: Page): Promise<string[]> =>
  page.evaluate(() => {
    const LEAST = 44;
    const CONTROLS = "a[href], button, input, select, textarea, summary, [role=menuitem]";
    const isInSentence = (element: Element): boolean =>
      element.tagName === "A" &&
      getComputedStyle(element).display === "inline" &&
      element.textContent?.trim() !== element.parentElement?.textContent?.trim();
    /** A row's link covers its row; a label belongs to its control. */
    const areaOf = (element: Element): Element[] => {
      if (element.classList.contains("row-link")) return [element.closest("li") ?? element];
      return [element, ...((element as HTMLInputElement).labels ?? [])];
    };
    const isShown = (element: Element): boolean =>
      element.checkVisibility({ visibilityProperty: true, opacityProperty: false }) &&
      !element.matches(".sr-only, [type=hidden], :disabled") &&
      element.getBoundingClientRect().bottom + scrollY > 0 &&
      element.getBoundingClientRect().height > 1;
    return [...document.querySelectorAll(CONTROLS)].flatMap((element) => {
      if (!isShown(element) || isInSentence(element)) return [];
      const areas = areaOf(element).map((area) => area.getBoundingClientRect());
      const height =
        Math.max(...areas.map(({ bottom }) => bottom)) - Math.min(...areas.map(({ top }) => top));
      const width =
        Math.max(...areas.map(({ right }) => right)) - Math.min(...areas.map(({ left }) => left));
      if (height >= LEAST && width >= LEAST) return [];
      const name = element.getAttribute("aria-label") ?? element.textContent?.trim().slice(0, 40);
      return [
        `${element.tagName.toLowerCase()} "${name}": ${width.toFixed(1)} x ${height.toFixed(1)}`,
      ];
    });
  });
