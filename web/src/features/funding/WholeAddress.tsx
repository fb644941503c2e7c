import { Center } from "@mantine/core";
import { lazy, type ReactNode, Suspense } from "react";
import { Address } from "../../components/Address.tsx";
import { Skeleton } from "../../components/Skeleton.tsx";
import { loadPart } from "../../lib/reachable.ts";
import type { Agent } from "../../lib/wire.ts";
import { useExplorer } from "../../shared/info.ts";

const QrCode = lazy(async () => {
  const { QRCodeSVG } = await loadPart(() => import("qrcode.react"));
  return { default: QRCodeSVG };
});

/** The full address, as text and as a QR code. */
export function WholeAddress({
  agent,
  network = agent.network,
}: {
  agent: Agent;
  network?: string;
}): ReactNode {
  const { walletAddress } = agent;
  const explorer = useExplorer(network);
  return (
    <>
      {/* Dark on light in both themes, because many scanners cannot read inverted codes. */}
      <Center
        w={208}
        h={208}
        bd="1px solid var(--line)"
        bg="#fff"
        style={{ borderRadius: "var(--radius)" }}
      >
        <Suspense fallback={<Skeleton shape="block" />}>
          <QrCode
            value={walletAddress}
            size={176}
            level="M"
            title={`QR code of ${walletAddress}`}
          />
        </Suspense>
      </Center>
      <Address value={walletAddress} full explorerUrl={explorer} />
    </>
  );
}
