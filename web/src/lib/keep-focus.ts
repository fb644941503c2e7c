/**
 * When the focused element disappears, the focus moves to the open dialog, or to the title of the page. Otherwise keyboard
 * and screen reader would start at the top of the page again.
 */
export function keepFocus(): void {
  let focused: Node | null = null;
  document.addEventListener("focusin", ({ target }) => {
    focused = target as Node;
  });
  new MutationObserver(() => {
    if (focused === null || focused.isConnected) return;
    focused = null;
    if (document.activeElement !== document.body) return;
    const dialog = [...document.querySelectorAll<HTMLElement>("[role=dialog]")].at(-1);
    (dialog ?? document.getElementById("page-title"))?.focus({ preventScroll: true });
  }).observe(document.body, { childList: true, subtree: true });
}
