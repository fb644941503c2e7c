import type { ReactNode } from "react";
import { LinkButton } from "../../components/Button.tsx";
import { PageHeader } from "../../components/PageHeader.tsx";

export default function NotFoundScreen(): ReactNode {
  return (
    <>
      <PageHeader
        title="Page not found"
        lead="The address may be wrong, or the page was removed."
      />
      <LinkButton to="/agents" variant="primary">
        Go to your agents
      </LinkButton>
    </>
  );
}
