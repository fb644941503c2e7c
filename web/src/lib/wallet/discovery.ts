/** Discovers browser wallets: those that announce themselves (EIP-6963), else `window.ethereum`. */
import { useEffect } from "react";
import { createStore } from "../store.ts";
import type { Provider, Wallet } from "./provider.ts";

interface Announcement {
  info: { uuid: string; name: string; icon: string; rdns: string };
  provider: Provider;
}

const wallets = createStore<readonly Wallet[]>([]);
let isListening = false;

const legacyProvider = (): Provider | undefined => {
  const candidate = (globalThis as { ethereum?: Provider }).ethereum;
  return typeof candidate?.request === "function" ? candidate : undefined;
};

/** Only image formats that the Content-Security-Policy allows, as data URLs: never a remote address. */
const safeIcon = (icon: unknown): string | undefined =>
  typeof icon === "string" && /^data:image\/(png|webp|jpeg|gif|svg\+xml)[;,]/.test(icon)
    ? icon
    : undefined;

function onAnnounce(event: Event): void {
  const detail = (event as CustomEvent<Announcement | undefined>).detail;
  if (typeof detail?.provider?.request !== "function" || typeof detail.info?.name !== "string")
    return;
  const { info, provider } = detail;
  const id = info.rdns || info.uuid;
  if (wallets.get().some((wallet) => wallet.id === id)) return;
  wallets.set([
    ...wallets.get(),
    {
      id,
      name: info.name.slice(0, 60),
      icon: safeIcon(info.icon),
      kind: "announced",
      open: () => Promise.resolve(provider),
    },
  ]);
}

/** Wallets announce themselves when a page requests it. */
function listen(): void {
  if (isListening) return;
  isListening = true;
  globalThis.addEventListener("eip6963:announceProvider", onAnnounce);
  globalThis.dispatchEvent(new Event("eip6963:requestProvider"));
}

/** The announced wallets; `window.ethereum` only where none announced itself. */
export function useInstalledWallets(): readonly Wallet[] {
  const announced = wallets.use();
  useEffect(listen, []);
  const legacy = legacyProvider();
  if (announced.length > 0 || !legacy) return announced;
  return [
    {
      id: "injected",
      name: "Browser wallet",
      icon: undefined,
      kind: "injected",
      open: () => Promise.resolve(legacy),
    },
  ];
}
