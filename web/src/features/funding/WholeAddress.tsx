import { lazy, type ReactNode, Suspense } from "react";
import { Address } from "../../components/Address.tsx";
import { Skeleton } from "../../components/Skeleton.tsx";
import type { Agent } from "../../lib/wire.ts";
import { useExplorer } from "../../shared/info.ts";
import styles from "./WholeAddress.module.css";

const QrCode = lazy(async () => {
  const { QRCodeSVG } = await import("qrcode.react");
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
      <div className={styles.code}>
        <Suspense fallback={<Skeleton shape="block" />}>
          <QrCode
            value={walletAddress}
            size={176}
            level="M"
            title={`QR code of ${walletAddress}`}
          />
        </Suspense>
      </div>
      <Address value={walletAddress} full explorerUrl={explorer} />
    </>
  );
}
