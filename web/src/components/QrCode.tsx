import { lazy, type ReactNode, Suspense } from "react";
import { Skeleton } from "./Skeleton.tsx";
import styles from "./QrCode.module.css";

const Picture = lazy(async () => {
  const { QRCodeSVG } = await import("qrcode.react");
  return { default: QRCodeSVG };
});

/** Dark on light in both themes: many scanners cannot read it the other way round. */
export function QrCode({ value, label }: { value: string; label: string }): ReactNode {
  return (
    <div className={styles.root}>
      <Suspense fallback={<Skeleton shape="block" />}>
        <Picture value={value} size={176} level="M" title={label} />
      </Suspense>
    </div>
  );
}
