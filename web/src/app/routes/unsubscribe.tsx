import type { ReactNode } from "react";
import { PageHeader } from "../../components/PageHeader.tsx";
import { Unsubscribe } from "../../features/notifications/LinkActions.tsx";

export default function UnsubscribeScreen(): ReactNode {
  return (
    <>
      <PageHeader title="Unsubscribe" />
      <Unsubscribe />
    </>
  );
}
