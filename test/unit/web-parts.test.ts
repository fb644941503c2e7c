// Goal: a part of the app that cannot be loaded reloads the page once, however slow the line is; then it fails, and never reloads
// the page again and again.
import t from "tap";
import { until } from "../helpers/until.ts";
import { loadPart } from "../../web/src/lib/reachable.ts";

const kept = new Map<string, string>();
const here = "https://purser.example/agents";
let reloads = 0;
// Newer versions of Node have a navigator of their own, which only a definition replaces.
Object.defineProperty(globalThis, "navigator", { value: { onLine: true }, configurable: true });
Object.assign(globalThis, {
  fetch: () => Promise.resolve(new Response("{}")),
  sessionStorage: {
    getItem: (key: string) => kept.get(key) ?? null,
    setItem: (key: string, value: string) => void kept.set(key, value),
    removeItem: (key: string) => void kept.delete(key),
  },
  location: { href: here, reload: () => void (reloads += 1) },
});

t.test("a reload that does not help", async (t) => {
  const gone = () => Promise.reject(new Error("the part is gone"));
  void loadPart(gone);
  await until(() => reloads === 1);
  t.equal(await loadPart(() => Promise.resolve("the frame")), "the frame");
  t.intercept(performance, "now", { value: () => 60_000 });
  await t.rejects(loadPart(gone), { message: "the part is gone" }, "also after a minute");
  t.equal(reloads, 1);
});

t.test("a part that has loaded may reload the page again later", async (t) => {
  let isThere = false;
  const part = () => (isThere ? Promise.resolve("part") : Promise.reject(new Error("gone")));
  void loadPart(part);
  await until(() => reloads === 2);
  isThere = true;
  t.equal(await loadPart(part), "part");
  isThere = false;
  void loadPart(part);
  await until(() => reloads === 3);
  t.equal(reloads, 3);
});
