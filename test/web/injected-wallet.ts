// A browser-extension wallet (EIP-6963) for tests: its keys are in the test process, and viem signs.
import type { Page } from "playwright-core";
import { type Address, type Hex, hexToNumber, type TypedDataDefinition } from "viem";
import type { TestAccount, TestChain } from "../helpers/chain.ts";

export interface InjectedWallet {
  /** All requests of the page, in order. */
  requests: { method: string; params: unknown }[];
  /** The next request of this kind is rejected, as if the user pressed "Reject". */
  rejectNext(method: string): void;
  /** The next request of this kind gets no response, as if the window stays open. */
  hangNext(method: string): void;
  /** The next order is signed with another account than requested, as some wallets allow. */
  signNextAs(account: TestAccount): void;
  /** Runs while the wallet shows the next order. */
  whileSigning(work: () => Promise<unknown>): void;
  /** The number of orders that were shown. */
  windows(): number;
  /** The user selects another account in the wallet. */
  switchAccount(page: Page, account: TestAccount): Promise<void>;
  /** The user selects another chain in the wallet. */
  switchChain(page: Page, chainId: number): Promise<void>;
  chainId(): number;
}

export interface WalletOptions {
  chainId: number;
  /** The chains that the wallet knows; switching to another one fails with 4902. */
  knownChains?: number[];
  /** Only set `window.ethereum`, without announcing by EIP-6963. */
  legacy?: boolean;
  name?: string;
  /** The chain for the wallet's own transactions; without it the wallet sends none. */
  chain?: TestChain;
}

const ICON = "data:image/svg+xml,<svg xmlns='http://www.w3.org/2000/svg' width='1' height='1'/>";

class WalletError extends Error {
  readonly code: number;
  constructor(code: number, message: string) {
    super(message);
    this.code = code;
  }
}

/** Call this before the page is opened. */
export async function injectWallet(
  page: Page,
  first: TestAccount,
  options: WalletOptions,
): Promise<InjectedWallet> {
  let account = first;
  let chainId = options.chainId;
  const known = new Set(options.knownChains ?? [options.chainId]);
  const rejections = new Map<string, number>();
  const hanging = new Set<string>();
  let nextSigner: TestAccount | undefined;
  let meanwhile: (() => Promise<unknown>) | undefined;
  const requests: InjectedWallet["requests"] = [];

  async function answer(method: string, params: unknown[]): Promise<unknown> {
    requests.push({ method, params });
    const left = rejections.get(method) ?? 0;
    if (left > 0) {
      rejections.set(method, left - 1);
      throw new WalletError(4001, "User rejected the request.");
    }
    if (hanging.delete(method)) return new Promise(() => {});
    switch (method) {
      case "eth_requestAccounts":
      case "eth_accounts":
        return [account.address.toLowerCase()];
      case "eth_chainId":
        return `0x${chainId.toString(16)}`;
      case "personal_sign":
        return account.signMessage({ message: { raw: params[0] as Hex } });
      case "eth_signTypedData_v4": {
        const typed = JSON.parse(params[1] as string) as TypedDataDefinition;
        // Real wallets refuse to sign for a chain that they are not connected to.
        if (Number(typed.domain?.chainId) !== chainId)
          throw new WalletError(
            -32603,
            `Provided chainId must match the active chainId ${chainId}`,
          );
        const work = meanwhile;
        meanwhile = undefined;
        await work?.();
        const signer = nextSigner ?? account;
        nextSigner = undefined;
        return signer.signTypedData(typed);
      }
      case "eth_sendTransaction": {
        if (!options.chain) throw new WalletError(4200, "this wallet sends nothing");
        const { to, data } = params[0] as { to: Address; data: Hex };
        return options.chain.walletClient(account).sendTransaction({ to, data });
      }
      case "wallet_addEthereumChain":
        known.add(hexToNumber((params[0] as { chainId: Hex }).chainId));
        return null;
      case "wallet_switchEthereumChain": {
        const next = hexToNumber((params[0] as { chainId: Hex }).chainId);
        if (!known.has(next)) throw new WalletError(4902, "Unrecognized chain ID");
        chainId = next;
        await page.evaluate(
          (id) => (globalThis as PageWallet).emitFromWallet?.("chainChanged", id),
          `0x${next.toString(16)}`,
        );
        return null;
      }
      default:
        throw new WalletError(4200, `not supported: ${method}`);
    }
  }

  await page.exposeFunction("askTestWallet", async (method: string, params: unknown[]) => {
    try {
      return { result: await answer(method, params) };
    } catch (error) {
      const { code, message } = error as WalletError;
      return { error: { code: code ?? -32603, message } };
    }
  });
  // The TypeScript loader wraps functions with a helper that the page does not have.
  await page.addInitScript("globalThis.__name ??= (value) => value;");
  await page.addInitScript(installInPage, {
    icon: ICON,
    name: options.name ?? "Test Wallet",
    legacy: options.legacy ?? false,
  });

  return {
    requests,
    rejectNext: (method) => void rejections.set(method, (rejections.get(method) ?? 0) + 1),
    hangNext: (method) => void hanging.add(method),
    signNextAs: (signer) => void (nextSigner = signer),
    whileSigning: (work) => void (meanwhile = work),
    windows: () => requests.filter(({ method }) => method === "eth_signTypedData_v4").length,
    async switchAccount(page, next) {
      account = next;
      await page.evaluate(
        (address) => (globalThis as PageWallet).emitFromWallet?.("accountsChanged", [address]),
        next.address.toLowerCase(),
      );
    },
    async switchChain(page, next) {
      chainId = next;
      await page.evaluate(
        (id) => (globalThis as PageWallet).emitFromWallet?.("chainChanged", id),
        `0x${next.toString(16)}`,
      );
    },
    chainId: () => chainId,
  };
}

interface PageWallet {
  emitFromWallet?: (event: string, payload: unknown) => void;
  askTestWallet?: (
    method: string,
    params: unknown,
  ) => Promise<{ result?: unknown; error?: { code: number; message: string } }>;
}

/** Runs in the page, before its own scripts. */
function installInPage({ icon, name, legacy }: { icon: string; name: string; legacy: boolean }) {
  const page = globalThis as unknown as PageWallet & { ethereum?: unknown } & EventTarget;
  const listeners: Record<string, ((payload: unknown) => void)[]> = {};
  page.emitFromWallet = (event, payload) => {
    for (const listener of listeners[event] ?? []) listener(payload);
  };
  const provider = {
    async request({ method, params }: { method: string; params?: unknown }) {
      const answer = await page.askTestWallet?.(method, params ?? []);
      if (answer?.error) throw Object.assign(new Error(answer.error.message), answer.error);
      return answer?.result;
    },
    on: (event: string, listener: (payload: unknown) => void) =>
      void (listeners[event] ??= []).push(listener),
    removeListener: (event: string, listener: (payload: unknown) => void) =>
      void (listeners[event] = (listeners[event] ?? []).filter((each) => each !== listener)),
  };
  if (legacy) {
    page.ethereum = provider;
    return;
  }
  const info = { uuid: "350670db-19fa-4704-a166-e52e178b59d2", name, icon, rdns: "test.wallet" };
  const announce = () =>
    page.dispatchEvent(
      new CustomEvent("eip6963:announceProvider", { detail: Object.freeze({ info, provider }) }),
    );
  page.addEventListener("eip6963:requestProvider", announce);
  announce();
}
