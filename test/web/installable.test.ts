// Goal: on a phone the app can be installed, says when it is not connected, shows pushed messages that open the right page, and
// is never stuck on an old build; its service worker keeps no answer of the API and decides nothing.
import { createServer, type IncomingMessage, type ServerResponse } from "node:http";
import { once } from "node:events";
import { mkdtempSync, rmSync } from "node:fs";
import type { AddressInfo } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { chromium, type CDPSession, type Page, type Worker } from "playwright-core";
import t from "tap";
import { newVapidKeys } from "../../server/core/push-settings.ts";
import { openPage } from "../helpers/browser.ts";
import { launchOptions } from "../helpers/bundled-browser.ts";
import { until } from "../helpers/until.ts";
import { newBrowser } from "../notifications/push-receiver.ts";
import { startTarget, type Json } from "../notifications/world.ts";
import { picture, stepsOf } from "./pictures.ts";
import { signInWithDemoWallet, webWorld } from "./world.ts";

const OFFLINE_FILES = ["/favicon.svg", "/offline.css", "/offline.html", "/offline.js"];

const ready = (page: Page): Promise<unknown> =>
  page.evaluate(async () => {
    const { active } = await navigator.serviceWorker.ready;
    if (active?.state !== "activated")
      await new Promise((resolve) => active?.addEventListener("statechange", resolve));
    return navigator.serviceWorker.controller !== null;
  });
const kept = (page: Page): Promise<{ name: string; paths: string[] }[]> =>
  page.evaluate(async () =>
    Promise.all(
      (await caches.keys()).map(async (name) => ({
        name,
        paths: (await (await caches.open(name)).keys()).map(({ url }) => new URL(url).pathname),
      })),
    ),
  );
/** The bundled browser has no place to show notifications: what the worker shows is kept here instead. */
interface WorkerOfTest extends EventTarget {
  shown: { title: string; close(): void; data: unknown }[];
  ServiceWorkerRegistration: { prototype: object };
  ExtendableEvent: new (type: string) => Event;
}
const keepShown = (worker: Worker): Promise<unknown> =>
  worker.evaluate(() => {
    const scope = self as unknown as WorkerOfTest;
    scope.shown = [];
    Object.assign(scope.ServiceWorkerRegistration.prototype, {
      showNotification: async (title: string, options: { data: unknown }) =>
        void scope.shown.push({ title, ...options, close: () => undefined }),
    });
  });
const shown = (worker: Worker): Promise<Json[]> =>
  worker.evaluate(
    () => JSON.parse(JSON.stringify((self as unknown as WorkerOfTest).shown)) as Json[],
  );
/** What the browser does when the newest message is pressed. */
const press = (worker: Worker): Promise<unknown> =>
  worker.evaluate(() => {
    const scope = self as unknown as WorkerOfTest;
    const event = new scope.ExtendableEvent("notificationclick");
    scope.dispatchEvent(Object.assign(event, { notification: scope.shown.at(-1) }));
  });

/** Reads the body too: otherwise the connection stays open. */
async function headersOf(url: string): Promise<Headers> {
  const answer = await fetch(url);
  await answer.arrayBuffer();
  return answer.headers;
}

async function deliverTo(
  cdp: CDPSession,
  origin: string,
): Promise<(data: string) => Promise<void>> {
  let registrationId: string | undefined;
  cdp.on("ServiceWorker.workerRegistrationUpdated", ({ registrations }) => {
    registrationId = registrations.find(
      ({ scopeURL }) => scopeURL === `${origin}/`,
    )?.registrationId;
  });
  await cdp.send("ServiceWorker.enable");
  await until(() => registrationId !== undefined);
  return async (data) => {
    await cdp.send("ServiceWorker.deliverPushMessage", {
      origin,
      registrationId: registrationId ?? "",
      data,
    });
  };
}

t.test("the app on a phone", async (t) => {
  const service = await startTarget(t);
  const world = await webWorld(t, {
    env: { VAPID_KEYS: newVapidKeys(), FETCH_PRIVATE_ORIGINS: service.origin },
  });
  const { baseUrl } = world;
  const { page, faults } = await openPage(t, world.browser, {
    reducedMotion: "reduce",
    serviceWorkers: "allow",
  });
  const context = page.context();
  const phone = newBrowser(`${service.origin}/phone`);
  // The push services of browsers are on the internet: the subscription is one of this machine.
  await page.addInitScript({
    content: `
      Object.defineProperty(Notification, "permission", { get: () => "granted" });
      Notification.requestPermission = async () => "granted";
      const made = ${JSON.stringify({ endpoint: phone.endpoint, keys: phone.keys })};
      const subscription = {
        endpoint: made.endpoint,
        options: { applicationServerKey: null },
        toJSON: () => made,
        unsubscribe: async () => sessionStorage.removeItem("subscribed"),
      };
      PushManager.prototype.getSubscription = async () =>
        sessionStorage.getItem("subscribed") === null ? null : subscription;
      PushManager.prototype.subscribe = async ({ applicationServerKey }) => {
        sessionStorage.setItem("subscribed", "yes");
        return subscription;
      };`,
  });
  await page.goto(`${baseUrl}/notifications/devices`);
  await signInWithDemoWallet(page);
  await page.getByText("Notify me on this device").waitFor();
  const cdp = await context.newCDPSession(page);
  const step = stepsOf(t);
  const [worker = await context.waitForEvent("serviceworker")] = context.serviceWorkers();
  await ready(page);
  await keepShown(worker);
  const deliver = await deliverTo(cdp, baseUrl);

  await step("it can be installed", async (t) => {
    const { errors, data } = await cdp.send("Page.getAppManifest");
    t.same(errors, []);
    t.match(JSON.parse(data ?? ""), { display: "standalone", start_url: "/agents", scope: "/" });
    // A test's window is private, and private windows install nothing; below is one that is not.
    const home = mkdtempSync(join(tmpdir(), "purser-phone-"));
    const own = await chromium.launchPersistentContext(home, {
      headless: true,
      ...(await launchOptions()),
    });
    try {
      const [first = await own.newPage()] = own.pages();
      await first.goto(baseUrl);
      await ready(first);
      const session = await own.newCDPSession(first);
      const { installabilityErrors } = await session.send("Page.getInstallabilityErrors");
      t.same(installabilityErrors, []);
    } finally {
      await own.close();
      rmSync(home, { recursive: true, force: true });
    }
    for (const path of [
      "/icons/192.png",
      "/icons/512.png",
      "/icons/maskable.png",
      "/icons/badge.png",
    ])
      t.match((await headersOf(baseUrl + path)).get("content-type"), "image/png", path);
  });

  await step(
    "the service worker and the manifest are never old, under the same policy",
    async (t) => {
      const policy = (await headersOf(baseUrl)).get("content-security-policy");
      t.match(policy, /default-src 'none';script-src 'self';/);
      for (const [path, type] of [
        ["/sw.js", "javascript"],
        ["/manifest.webmanifest", "application/manifest+json"],
        ["/offline.html", "text/html"],
      ] as const) {
        const headers = await headersOf(baseUrl + path);
        t.match(headers.get("content-type"), type);
        t.equal(headers.get("cache-control"), "no-cache", path);
        t.equal(headers.get("content-security-policy"), policy, path);
      }
    },
  );

  await step("it keeps the offline page, and nothing of the API or of the app", async (t) => {
    await ready(page);
    await page.goto(`${baseUrl}/agents`);
    await page.goto(`${baseUrl}/notifications`);
    await page
      .getByText("New sign-in to your account")
      .or(page.getByText("History"))
      .first()
      .waitFor();
    const caches = await kept(page);
    t.equal(caches.length, 1);
    t.match(caches[0]?.name, /^offline-[0-9a-f]{12}$/);
    t.same(caches[0]?.paths.sort(), OFFLINE_FILES);
  });

  await step("without a connection it says so, and comes back by itself", async (t) => {
    await context.setOffline(true);
    await page.goto(`${baseUrl}/agents`);
    await page.getByRole("heading", { name: "Not connected" }).waitFor();
    t.equal(page.url(), `${baseUrl}/agents`, "the address stays");
    t.equal(
      await page.evaluate(() =>
        fetch("/api/agents").then(
          () => "answered",
          () => "none",
        ),
      ),
      "none",
    );
    await picture2(page, "offline");
    await context.setOffline(false);
    await page.getByRole("heading", { name: "Agents", exact: true }).first().waitFor();
  });

  await step(
    "switched on, a message arrives encrypted, is shown, and opens its page",
    async (t) => {
      await page.goto(`${baseUrl}/notifications/devices`);
      await picture(page, "devices-off", true);
      await page.getByLabel("Notify me on this device").click();
      await page.getByText("This device", { exact: true }).waitFor();
      await page.getByRole("button", { name: /^Send a test/ }).click();
      await page.getByText("It should appear on the device").waitFor();
      await picture(page, "devices-on", true);
      const [received] = service.at("/phone");
      const message = received ? phone.open(received) : {};
      await page.goto(`${baseUrl}/settings`);
      await deliver(JSON.stringify(message));
      await until(async () => (await shown(worker)).length === 1);
      t.match(await shown(worker), [
        {
          title: "Notifications work on this device",
          body: "This is the test that you asked for.",
          data: { path: "/notifications/devices" },
        },
      ]);
      await press(worker);
      await page.waitForURL("**/notifications/devices");
    },
  );

  await step(
    "the events of a device are chosen; silencing the last one is confirmed",
    async (t) => {
      const types = async () =>
        (await world.database.pool.query("SELECT types FROM push_devices")).rows[0]
          .types as string[];
      await page.getByRole("button", { name: /^Choose events/ }).click();
      const events = page.getByRole("group", { name: /^Events for/ });
      await picture(page, "devices-events", true);
      await events.getByLabel("Everything", { exact: true }).click();
      await events.getByLabel("Approvals", { exact: true }).click();
      await events.getByRole("button", { name: "Save events" }).click();
      const warning = page.getByRole("dialog");
      await warning.getByText("Approval requested").waitFor();
      await picture(page, "devices-silence");
      await warning.getByRole("button", { name: "Cancel" }).click();
      t.ok((await types()).includes("approval.requested"), "nothing changed");
      await events.getByLabel("Approvals", { exact: true }).click();
      await events.getByLabel("Refusals", { exact: true }).click();
      await events.getByRole("button", { name: "Save events" }).click();
      await page.getByText("Gets: payments, approvals, account").waitFor();
      t.notOk((await types()).includes("payment.blocked"));
      t.ok((await types()).includes("agent.funded"));
    },
  );

  await step("a message that names another site, or is no message, opens the list", async (t) => {
    const odd = [
      "https://evil.example/",
      "//evil.example/x",
      String.raw`\\evil.example`,
      7,
      "javascript:alert(1)",
    ];
    for (const [index, path] of odd.entries())
      await deliver(JSON.stringify({ title: "x", body: "x", tag: `odd-${index}`, path }));
    await deliver("not JSON");
    await until(async () => (await shown(worker)).length === odd.length + 2);
    for (const { data } of (await shown(worker)).slice(1)) t.same(data, { path: "/notifications" });
  });

  await step("a device that fails is marked, and signing out removes it", async (t) => {
    service.answer("/phone", (_request, response) => response.writeHead(500).end());
    await page.getByRole("button", { name: /^Send a test/ }).click();
    await page.getByText("The test was not sent").waitFor();
    await page.getByText(/^Device .* has failed since/).waitFor();
    await page.getByText(/^Failing since/).waitFor();
    await picture(page, "devices-failing", true);
    await page.getByRole("button", { name: /^Account/ }).click();
    await page.getByRole("menuitem", { name: "Sign out" }).click();
    await page.waitForURL(`${baseUrl}/`);
    const { rows } = await world.database.pool.query("SELECT 1 FROM push_devices");
    t.same(rows, []);
    t.equal(await page.evaluate(() => sessionStorage.getItem("subscribed")), null);
  });
  t.same(faults, []);
});

t.test("a new build is shown at once, and its service worker replaces the old one", async (t) => {
  const world = await webWorld(t);
  let isNew = false;
  const ended = new AbortController();
  const pass = async (request: IncomingMessage, response: ServerResponse): Promise<void> => {
    const answer = await fetch(world.baseUrl + (request.url ?? "/"), { signal: ended.signal });
    let body = Buffer.from(await answer.arrayBuffer());
    if (isNew && request.url === "/sw.js")
      body = Buffer.from(body.toString().replace(/offline-[0-9a-f]{12}/, "offline-newer"));
    if (isNew && request.url === "/facilitator")
      body = Buffer.from(body.toString().replace("<title>Purser", "<title>Newer Purser"));
    response.writeHead(answer.status, {
      "content-type": answer.headers.get("content-type") ?? "",
      "cache-control": answer.headers.get("cache-control") ?? "",
    });
    response.end(body);
  };
  const proxy = createServer((request, response) => {
    pass(request, response).catch(() => response.destroy());
  }).listen(0, "127.0.0.1");
  await once(proxy, "listening");
  t.teardown(() => {
    ended.abort();
    proxy.closeAllConnections();
    proxy.close();
  });
  const origin = `http://127.0.0.1:${(proxy.address() as AddressInfo).port}`;
  const { page } = await openPage(t, world.browser, { serviceWorkers: "allow" });
  await page.goto(`${origin}/facilitator`);
  await ready(page);
  t.notMatch(await page.content(), "Newer Purser");
  isNew = true;
  const response = await page.goto(`${origin}/facilitator`);
  t.match(await response?.text(), "<title>Newer Purser", "the very next page is the new build's");
  // A browser looks for a newer worker by itself, some time after a page was opened. One that is on its way is left alone.
  let seen = "";
  const isReplaced = async (): Promise<boolean> => {
    const states = await page.evaluate(async () => {
      const registration = await navigator.serviceWorker.getRegistration();
      const { installing, waiting, active } = registration ?? {};
      if (!installing && !waiting) await registration?.update();
      return [installing?.state, waiting?.state, active?.state];
    });
    const names = (await kept(page)).map(({ name }) => name).join();
    seen = `${names}; ${states.join()}`;
    return names === "offline-newer";
  };
  await until(isReplaced, 30_000).catch((cause: unknown) => {
    throw new Error(`the old worker stays: ${seen}`, { cause });
  });
});

/** The offline page has no theme of the app. */
async function picture2(page: Page, name: string): Promise<void> {
  const folder = process.env["SCREENSHOTS"];
  if (folder === undefined) return;
  for (const colorScheme of ["light", "dark"] as const) {
    await page.emulateMedia({ colorScheme });
    await page.screenshot({ path: join(folder, `${name}-${colorScheme}.png`) });
  }
  await page.emulateMedia({ colorScheme: "light" });
}
