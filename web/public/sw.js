/**
 * The service worker. It shows pushed messages, and a page that says "Not connected" while there is no network. That page
 * is all it keeps: no answer of the API and no page of the app, so that a new build is in effect at once. It has no key, sends
 * nothing but what the page requests, and decides nothing: a pressed message opens a page.
 */
const CACHE = "offline-__OFFLINE__";
const OFFLINE_PAGE = "/offline.html";
const FILES = [OFFLINE_PAGE, "/offline.css", "/offline.js", "/favicon.svg"];
const EVERYTHING = "/notifications";

self.addEventListener("install", (event) => {
  event.waitUntil(install());
});

self.addEventListener("activate", (event) => {
  event.waitUntil(activate());
});

self.addEventListener("fetch", (event) => {
  const { request } = event;
  const { origin, pathname } = new URL(request.url);
  if (request.method !== "GET" || origin !== self.location.origin) return;
  if (request.mode === "navigate" && !pathname.startsWith("/api/"))
    event.respondWith(orKept(request, OFFLINE_PAGE));
  else if (FILES.includes(pathname)) event.respondWith(orKept(request, pathname));
});

self.addEventListener("push", (event) => {
  event.waitUntil(show(event.data));
});

self.addEventListener("notificationclick", (event) => {
  event.notification.close();
  event.waitUntil(open(event.notification.data?.path ?? EVERYTHING));
});

async function install() {
  const cache = await caches.open(CACHE);
  await cache.addAll(FILES.map((file) => new Request(file, { cache: "reload" })));
  // An older worker has nothing that is worth waiting for.
  await self.skipWaiting();
}

async function activate() {
  const names = await caches.keys();
  await Promise.all(names.filter((name) => name !== CACHE).map((name) => caches.delete(name)));
  await self.clients.claim();
}

async function orKept(request, file) {
  try {
    return await fetch(request);
  } catch {
    const kept = await caches.match(file);
    return kept ?? Response.error();
  }
}

/** Every push must show something, also one that this version cannot read. */
async function show(data) {
  const message = read(data);
  await self.registration.showNotification(message.title ?? "Something happened in Purser", {
    body: message.body ?? "Open the app to see it.",
    tag: message.tag ?? "unknown",
    data: { path: ownPath(message.path) },
    icon: "/icons/192.png",
    badge: "/icons/badge.png",
  });
}

function read(data) {
  try {
    return data.json();
  } catch {
    return {};
  }
}

/** Only pages of this app. */
function ownPath(path) {
  if (typeof path !== "string" || !URL.canParse(path, self.location.origin)) return EVERYTHING;
  const { origin, pathname, search } = new URL(path, self.location.origin);
  return origin === self.location.origin ? `${pathname}${search}` : EVERYTHING;
}

/** In a window of the app that is open, otherwise in a new one. */
async function open(path) {
  const [window] = await self.clients.matchAll({ type: "window", includeUncontrolled: true });
  if (window === undefined) return self.clients.openWindow(path);
  // A browser may refuse the focus, and cannot move a window that this worker does not control yet.
  await window.focus().catch(() => undefined);
  return window.navigate(path).catch(() => self.clients.openWindow(path));
}
