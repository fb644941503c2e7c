/**
 * Web push on this device: the service worker, the browser's subscription, and which owner switched it on. The server
 * keeps the list of devices; this browser recognizes itself there by the hash of its endpoint.
 */
import { isSameAddress } from "./address.ts";
import { api } from "./api.ts";
import { nameDevice } from "./device.ts";

/** On a device that several owners use, only the one who switched it on gets messages again after a sign-in. */
const OWNER = "purser-push-owner";

export const isPushSupported = (): boolean =>
  "serviceWorker" in navigator && "PushManager" in window && "Notification" in window;

export const isPushBlocked = (): boolean => Notification.permission === "denied";

/** It also shows the offline page. The app works without it, for example in a private window that allows none. */
export async function startServiceWorker(): Promise<void> {
  if (!import.meta.env.PROD || !("serviceWorker" in navigator)) return;
  await navigator.serviceWorker
    .register("/sw.js", { updateViaCache: "none" })
    .catch(() => undefined);
}

async function subscription(): Promise<PushSubscription | null> {
  if (!isPushSupported()) return null;
  const registration = await navigator.serviceWorker.getRegistration();
  return (await registration?.pushManager.getSubscription()) ?? null;
}

export async function ownEndpointHash(): Promise<string | null> {
  const endpoint = (await subscription())?.endpoint;
  if (endpoint === undefined) return null;
  const digest = await crypto.subtle.digest("SHA-256", new TextEncoder().encode(endpoint));
  return Array.from(new Uint8Array(digest), (byte) => byte.toString(16).padStart(2, "0")).join("");
}

/** Asks for the browser's permission. */
export async function switchPushOn(publicKey: string, owner: string): Promise<void> {
  if ((await Notification.requestPermission()) !== "granted")
    throw new Error("The browser does not allow notifications of this site.");
  await register(publicKey);
  remember(owner);
}

/** The server removes the device by itself when its session is ended. */
export async function forgetPush(): Promise<void> {
  remember(null);
  await (await subscription())?.unsubscribe();
}

/** After a sign-in: the device now belongs to the new session, perhaps with new keys of the browser or of the service. */
export async function renewPush(owner: string): Promise<void> {
  if (!isPushSupported() || Notification.permission !== "granted") return;
  if (!isSameAddress(remembered(), owner)) return;
  const { publicKey } = await api.get<{ publicKey: string | null }>("/api/notifications/push");
  if (publicKey !== null) await register(publicKey);
}

async function register(publicKey: string): Promise<void> {
  const { pushManager } = await navigator.serviceWorker.ready;
  const key = bytesOf(publicKey);
  let found = await pushManager.getSubscription();
  if (found && !isSameKey(found.options.applicationServerKey, key)) {
    await found.unsubscribe();
    found = null;
  }
  found ??= await pushManager.subscribe({ userVisibleOnly: true, applicationServerKey: key });
  const { endpoint, keys } = found.toJSON();
  await api.post("/api/notifications/push", {
    endpoint,
    keys: { p256dh: keys?.["p256dh"], auth: keys?.["auth"] },
    label: nameDevice(navigator.userAgent),
  });
}

const bytesOf = (base64url: string): Uint8Array<ArrayBuffer> =>
  Uint8Array.from(atob(base64url.replaceAll("-", "+").replaceAll("_", "/")), (char) =>
    char.charCodeAt(0),
  );

const isSameKey = (one: ArrayBuffer | null, other: Uint8Array): boolean =>
  one !== null && new Uint8Array(one).join() === other.join();

function remember(owner: string | null): void {
  try {
    if (owner === null) localStorage.removeItem(OWNER);
    else localStorage.setItem(OWNER, owner);
  } catch {
    // Without storage the device must be switched on again after the next sign-in.
  }
}

function remembered(): string | null {
  try {
    return localStorage.getItem(OWNER);
  } catch {
    return null;
  }
}
